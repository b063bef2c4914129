"""Where a program's `fsdp2_support.py` lies, what is in it, and how each file imports it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import support
from ..findings import Change
from ..project import probes
from ..project.source import read_source
from ..pyanalysis.tree import Tree
from .in_file import is_annotated
from .search_path import SearchPath, Way, is_installed, is_installed_package, is_package, refuses_import, root_package

NAME = support.NAME
_TESTS = frozenset({"test", "tests"})
"""Folders that are not installed with the package beside them, so that it cannot import from there."""


@dataclass(frozen=True, slots=True)
class Place:
    """A support module, and what a file writes between `from` and `import` to get at it."""

    path: Path
    modules: tuple[str, ...]
    """Two, the second for where the first fails: a file that is loaded flat and from a package has no one form."""
    unserved: tuple[Path, ...] = ()
    """Folders that the file is found from when neither form works."""


def places(users: Collection[Path], texts: Mapping[Path, str], search: SearchPath) -> dict[Path, Place]:
    """For each of the files of a program that need the support module: where it lies, and how they import it.

    There is one for all that are found from the same folder. Scripts that start elsewhere, and import from there, take
    that one too: two copies of `ShardingStrategy` would not be equal. One that the program has stays where it is.
    """
    groups: dict[Path, list[Path]] = defaultdict(list)
    for user in users:
        groups[search.folder(user)].append(user)
    homes = {start: _home(start, known, texts, search) for start, known in groups.items()}
    # What is installed is found from elsewhere, but not the scripts and tests beside it.
    shared = {
        start
        for start, home in homes.items()
        if (home.parent != start or not is_installed(start)) and not _are_tests(groups[start], start)
    }
    found = {}
    for start, known in groups.items():
        host = _host(start, {each: groups[each] for each in groups if each == start or each in shared}, search)
        placed = {user: _place(user, host, homes, texts, search) for user in known}
        if host != start and any(place.unserved for place in placed.values()):
            # It was imported by a name that run time makes, and is not found by an import.
            placed = {user: _place(user, start, homes, texts, search) for user in known}
        found.update(placed)
    return found


def _place(user: Path, host: Path, homes: Mapping[Path, Path], texts: Mapping[Path, str], search: SearchPath) -> Place:
    return Place(homes[host], *_module_names(homes[host], user, host, texts, search))


def is_for_tests(home: Path) -> bool:
    return not _TESTS.isdisjoint(home.parts)


def change(path: Path, asked: support.Asked, users: Sequence[Tree], texts: Mapping[Path, str]) -> Change | None:
    """The support module for these calls; None when it serves them already. What the user edited is kept."""
    before = _there(path, texts)
    fitting = [width for width in support.WIDTHS if sum(user.width >= width for user in users) * 2 >= len(users)]
    width = max(fitting, default=min(support.WIDTHS))
    new = support.compose(asked, is_annotated(users), width)
    after = support.update(before, asked) if before is not None else new
    return Change(path, before, after) if after != before else None


def unserved(path: Path, asked: support.Asked, texts: Mapping[Path, str]) -> list[str]:
    """The parameters that a support module lacks which the user edited, so that it is not cut anew."""
    before = _there(path, texts)
    return support.unserved(before, asked) if before is not None else []


def _there(path: Path, texts: Mapping[Path, str]) -> str | None:
    """One that another program of the same folder uses is not among this program's texts: it is read from the disk."""
    before = texts.get(path)
    return read_source(path).text if before is None and probes.is_file(path) else before


def _host(start: Path, groups: Mapping[Path, Collection[Path]], search: SearchPath) -> Path:
    """The folder whose support module is used by what is found from `start`: one that it imports from, if it does.

    Of folders that import from each other, one that is installed, or the one with the most users.
    """
    ends = [each for each in _reached(start, groups, search) if start in _reached(each, groups, search)]
    further = [each for each in _reached(start, groups, search) if each not in ends]
    if further:
        return _host(further[0], groups, search)
    return max(ends, key=lambda each: (is_installed(each), len(groups[each]), str(each)))


def _reached(start: Path, groups: Collection[Path], search: SearchPath) -> list[Path]:
    """The folders with users that modules found from `start` import from, directly or not, and itself."""
    reached = [start]
    for folder in reached:
        reached += [each for each in sorted(search.imported_from(folder)) if each in groups and each not in reached]
    return reached


def _home(start: Path, users: Sequence[Path], texts: Mapping[Path, str], search: SearchPath) -> Path:
    """The one there is; else beside the users, in the folder above them all, or in the package that most belong to."""
    there = [path for path in texts if support.is_support_file(path) and path.is_relative_to(start)]
    if there:
        return there[0]
    inside: dict[Path, list[Path]] = defaultdict(list)
    for user in users:
        if user.parent != start:
            inside[start / user.relative_to(start).parts[0]].append(user)
    loose = any(user.parent == start for user in users)
    apart = is_installed(start) or search.is_imported_from_elsewhere(start)
    if inside and (apart or not loose):
        shared = _imported_by_all(users, start, search)
        for package in _ranked(inside, users, search):
            if any(map(is_package, shared)) and is_installed(start) and not is_package(package):
                continue  # scripts beside the package that is installed
            folder = Path(os.path.commonpath([path.parent for path in inside[package]]))
            others = [user for user in users if user not in inside[package]]
            # Importing from a package runs it: one that imports the file in turn would find half of it.
            if not search.starts([folder, *_up_to(folder, start)], others):
                return folder / f"{NAME}.py"
        for package in shared:
            if not search.starts([package], users):
                return package / f"{NAME}.py"
    return Path(os.path.commonpath([path.parent for path in users])) / f"{NAME}.py"


def _are_tests(users: Collection[Path], start: Path) -> bool:
    return all(_TESTS.intersection(user.relative_to(start).parts) for user in users)


def _ranked(inside: Mapping[Path, list[Path]], users: Collection[Path], search: SearchPath) -> list[Path]:
    """The packages with users: first what all other users import from, then the one that most belong to.

    A library does not import from the scripts that use it, and nothing but tests from tests.
    """
    is_below = {
        each: all(user in inside[each] or each in search.packages_of(user, each.parent) for user in users)
        for each in inside
    }
    ranked = sorted(inside, key=lambda each: (is_below[each], len(inside[each]), str(each)), reverse=True)
    return [each for each in ranked if each.name not in _TESTS] or ranked


def _imported_by_all(users: Sequence[Path], start: Path, search: SearchPath) -> list[Path]:
    """The packages of a folder that every user imports from, without being one of them."""
    used = set.intersection(*(search.packages_of(user, start) for user in users))
    return sorted(each for each in used if each.name not in _TESTS)


def _up_to(folder: Path, start: Path) -> list[Path]:
    """The folders around one, below `start`."""
    return [each for each in folder.parents if each.is_relative_to(start) and each != start]


def _module_names(
    home: Path, user: Path, start: Path, texts: Mapping[Path, str], search: SearchPath
) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """The form that works however the file is loaded, in the file's own style, two where no one form does, and where
    nothing works.
    """
    ways = search.ways(user)
    roots = [start, *search.own_roots(user), *sorted({root for way in ways for root in way.roots})]
    forms = [_absolute(home, root) for root in roots if home.is_relative_to(root)]
    relative = _relative(home, user)
    forms = [relative, *forms] if relative and _imports_relatively(user, texts, search) else [*forms, relative]
    forms = [form for form in dict.fromkeys(forms) if form]
    working = {form: {way for way in ways if _works(form, home, way)} for form in forms}
    first = max(forms, key=lambda form: len(working[form]))  # the first of the best
    others = [form for form in forms if working[form] | working[first] > working[first]]
    both = (first, max(others, key=lambda form: len(working[form]))) if others else (first,)
    modules = tuple(sorted(both, key=lambda form: form == NAME))  # what is only beside a script comes last
    served = frozenset().union(*(working[form] for form in modules))
    return modules, tuple(sorted({root for way in ways - served for root in way.roots}))


def _works(form: str, home: Path, way: Way) -> bool:
    """Whether a file that is loaded one way finds the support module by a name."""
    name = form.lstrip(".")
    dots = len(form) - len(name)
    if dots:
        return dots <= len(way.package)
    folders = list(home.parents)
    roots = {*way.roots, *(folder for folder in folders if is_installed_package(folder, home))}
    if "." in name and any(map(refuses_import, folders[: name.count(".")])):
        return False
    return any(root.joinpath(*name.split(".")).with_suffix(".py") == home for root in roots)


def _absolute(home: Path, root: Path) -> str:
    return ".".join([*home.parent.relative_to(root).parts, NAME])


def _relative(home: Path, user: Path) -> str:
    """With the dots of a relative import; empty where no package holds both."""
    package = root_package(home.parent)
    if package is None or not user.is_relative_to(package):
        return ""
    parts = os.path.relpath(home.parent, user.parent).split(os.sep)
    return "." * (parts.count("..") + 1) + ".".join([p for p in parts if p not in {".", ".."}] + [NAME])


def _imports_relatively(user: Path, texts: Mapping[Path, str], search: SearchPath) -> bool:
    """As the file itself does; one that imports nothing of its package, as the others there."""
    if search.imports_relatively(user) or search.own_roots(user):
        return search.imports_relatively(user)
    package = root_package(user.parent)
    members = [path for path in texts if package is not None and path.is_relative_to(package)]
    relative = [path for path in members if search.imports_relatively(path)]
    others = [path for path in members if path not in relative and not search.is_script(path)]
    absolute = [path for path in others if search.own_roots(path)]
    # An `__init__.py` takes what it hands on relatively also where the modules name each other in full.
    said = [path for path in relative if path.name != "__init__.py"] or ([] if absolute else relative)
    return bool(said) and len(said) >= len(absolute)
