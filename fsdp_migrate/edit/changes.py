"""From the edits that the rules want to the files that are written, program by program."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path

import libcst as cst

from codemods.api import SUPPORT, Import
from codemods.tables.names import PACKAGE
from codemods.template import pieces

from .. import support
from ..findings import Change, FileError
from ..pyanalysis.program import Program
from ..pyanalysis.quiet_ast import tokens
from ..pyanalysis.tree import Tree
from . import support_file
from .apply import Overlap, Rendered, apply
from .check import faults
from .imports import Tidied, tidy
from .in_file import needed, own_text
from .long_lines import fitted
from .pending import Pending
from .quotes import in_quotes_of
from .search_path import SearchPath
from .taken_names import TakenNames

_HINT = "nothing of this program was written; this is a fault of fsdp-migrate, please report it with the file"


class Fault(Exception):
    """A new text that must not be written."""

    def __init__(self, path: Path, message: str, rules: Iterable[str]) -> None:
        who = ", ".join(dict.fromkeys(rules))
        super().__init__(f"{message} ({who})" if who else message)
        self.path = path


@dataclass(frozen=True, slots=True)
class Written:
    """What comes of a run: the new files, and the programs that stay as they are."""

    changes: tuple[Change, ...]
    errors: tuple[FileError, ...]
    failed: frozenset[Path]
    """The files of programs of which nothing is written."""
    supported: frozenset[Path]
    """The files that use a support module, and not functions of their own."""


@dataclass
class _Users:
    """The files that use one support module."""

    files: list[Tidied] = field(default_factory=list)
    are_flat: bool = False
    """Whether one of them imports it by its name alone."""


def write(
    program: Program,
    pending: Mapping[Path, Pending],
    groups: Sequence[Sequence[Path]],
    graph: Mapping[Path, Sequence[Path]],
) -> Written:
    """The new text of every file that changes, and the support modules; a program that fails its check stays."""
    search = SearchPath(graph, program.texts)
    changes: list[Change] = []
    errors: list[FileError] = []
    failed: set[Path] = set()
    supports: dict[Path, _Users] = defaultdict(_Users)
    supported: set[Path] = set()
    asking = [{path.parent for path in group if _asks_for_support(pending.get(path))} for group in groups]
    beside = {path.parent for path in program.texts if support.is_support_file(path)}
    for index, group in enumerate(groups):
        others = beside.union(*asking[:index], *asking[index + 1 :])
        try:
            is_shared = not others.isdisjoint(asking[index])
            made, asks = _of_group(program, pending, group, graph, search, supports, is_shared)
            changes += made
            supported.update(asks)
        except Fault as fault:
            errors.append(FileError(fault.path, str(fault), _HINT))
            failed.update(group)
    types = {name: frozenset[str]() for name in support.TYPES if program.mentions(name)}
    flat = [home for home, users in supports.items() if users.are_flat and support_file.is_for_tests(home)]
    together = [each for home in flat for each in supports[home].files]
    for home, users in supports.items():
        files = together if home in flat else users.files  # one run of the tests has one module of that name
        asked = support.joined(reduce(support.joined, (each.support for each in files)), types)
        change = support_file.change(home, asked, [each.tree for each in files], program.texts)
        changes += [change] if change is not None else []
    in_order = tuple(sorted(changes, key=lambda change: change.path))
    return Written(in_order, tuple(errors), frozenset(failed), frozenset(supported))


def _of_group(
    program: Program,
    pending: Mapping[Path, Pending],
    group: Sequence[Path],
    graph: Mapping[Path, Sequence[Path]],
    search: SearchPath,
    supports: dict[Path, _Users],
    is_shared: bool,
) -> tuple[list[Change], list[Path]]:
    """The changes, and the files that use the support module."""
    texts = program.texts
    wanted = {path: pending[path] for path in group if path in pending}
    touched = {path: each for path, each in wanted.items() if each.edits or PACKAGE in texts[path]}
    touched = {path: _in_its_quotes(program, path, each) for path, each in with_one(program, touched).items()}
    tidied = {path: _tidied(program, path, each) for path, each in touched.items()}
    for path, result in tidied.items():
        for name, message in result.misfits():
            raise Fault(path, message, _writers(wanted.get(path), name))
    users = [path for path, result in tidied.items() if result.support]
    if not any(map(support.is_support_file, group)):
        parts = {path: needed(tidied[path].support) for path in users}
        calls = Counter(name for part in parts.values() for name in part)
        or_some = any(count > 1 for count in calls.values())
        for path in users:
            elsewhere = frozenset[str]().union(*(part for other, part in parts.items() if other is not path))
            own = own_text(tidied[path], elsewhere, is_shared, or_some)
            if own is not None:
                wanted_here = {i for i in touched[path].imports if i.module != SUPPORT or i.name not in own.names}
                before = program.tree(path)
                assert before is not None
                tidied[path] = tidy(before, Tree(path, own.text, before.width), wanted_here | own.imports)
        users = [path for path in users if tidied[path].support]
    taken = TakenNames(program, tidied, group, graph)
    tidied = taken.settled()
    for path, name in taken.lacking():
        raise Fault(path, f"another file takes `{name}` from it, which goes", _writers(wanted.get(path), name))
    # Only now is it known who needs the support module, so where it lies, and how each file imports it.
    places = support_file.places(users, {path: texts[path] for path in group if path in texts}, search)
    for path, place in places.items():
        if place.unserved:
            folder = place.unserved[0].name
            raise Fault(path, f"no import of {support_file.NAME} works where the file is found from {folder}/", ())
        lacking = support_file.unserved(place.path, tidied[path].support, texts)
        if lacking:
            # The functions of an edited one are the user's.
            raise Fault(place.path, f"edited since it was written, and lacks {', '.join(lacking)}", ())
    changes = []
    for path, result in tidied.items():
        first, second = (*places[path].modules, "")[:2] if path in places else (SUPPORT, "")
        text = result.text(first, second, search.own_names(path))
        for name, message in faults(texts[path], text):
            raise Fault(path, message, _writers(wanted.get(path), name))
        if text != texts[path]:
            changes.append(Change(path, texts[path], text))
    for path in users:
        served = supports[places[path].path]
        served.files.append(tidied[path])
        served.are_flat |= support_file.NAME in places[path].modules
    return changes, users


def _asks_for_support(wanted: Pending | None) -> bool:
    return wanted is not None and any(item.module == SUPPORT for item in wanted.imports)


def _in_its_quotes(program: Program, path: Path, wanted: Pending) -> Pending:
    tree = program.tree(path)
    assert tree is not None
    return replace(wanted, edits={in_quotes_of(tree, edit): rule for edit, rule in wanted.edits.items()})


def _tidied(program: Program, path: Path, wanted: Pending) -> Tidied:
    before = program.tree(path)
    assert before is not None
    try:
        rendered = apply(path, program.texts[path], wanted.edits)
    except Overlap as overlap:
        raise Fault(path, "two changes overlap", map(wanted.edits.__getitem__, overlap.edits)) from None
    try:
        return tidy(before, Tree(path, fitted(before, rendered), before.width), wanted.imports)
    except cst.ParserSyntaxError as error:
        message = f"the rewritten text is not Python (line {error.raw_line})"
        raise Fault(path, message, _rules_at(wanted, rendered, error.raw_line)) from None


def _rules_at(wanted: Pending, rendered: Rendered, line: int) -> Iterator[str]:
    """The rules whose edits stand nearest above the end of a line of the new text."""
    end = sum(map(len, rendered.text.splitlines(keepends=True)[:line]))
    above = [(start, edit) for start, _, edit in rendered.made if start <= end]
    last = max((start for start, _ in above), default=0)
    return (wanted.edits[edit] for start, edit in above if start == last)


def _writers(wanted: Pending | None, name: str) -> Iterator[str]:
    """The rules that write a name."""
    edits = wanted.edits.items() if wanted is not None else ()
    return (rule for edit, rule in edits if name in _names(edit.text))


def _names(template: str) -> set[str]:
    text = "".join(each if isinstance(each, str) else " _ " for each in pieces(template))
    return {token.string for token in tokens(text)}


# Two support functions of one program where one of them serves for both.

SERVES = {"whole_state_dict": "full_state_dict"}
"""What a program does not need beside the other: with the model alone, both give the same."""


def with_one(program: Program, wanted: Mapping[Path, Pending]) -> dict[Path, Pending]:
    """What is wanted of the files of a program, with one function in the place of two."""
    found = dict(wanted)
    for lesser, other in SERVES.items():
        mine, others = _asking(lesser, wanted), _asking(other, wanted)
        # A function for one file alone can stand in it.
        if others and (len(others) > 1 or len(mine) > 1 or mine <= others):
            found |= {path: _exchanged(program, path, found[path], Import(SUPPORT, lesser), other) for path in mine}
    return found


def _asking(name: str, wanted: Mapping[Path, Pending]) -> set[Path]:
    return {path for path, each in wanted.items() if (SUPPORT, name) in {(i.module, i.name) for i in each.imports}}


def _exchanged(program: Program, path: Path, wanted: Pending, item: Import, other: str) -> Pending:
    there = next((each for each in wanted.imports if (each.module, each.name) == (SUPPORT, other)), None)
    tree = program.tree(path)
    is_free = there is not None or (tree is not None and all(name.value != other for name in tree.nodes(cst.Name)))
    if item not in wanted.imports or not is_free:
        return wanted  # the file means something else by one of the names
    there = there or Import(SUPPORT, other)
    called = re.compile(rf"(?<![\w.]){item.local}(?=\()")
    edits = {replace(edit, text=called.sub(there.local, edit.text)): rule for edit, rule in wanted.edits.items()}
    return replace(wanted, edits=edits, imports={*wanted.imports - {item}, there})
