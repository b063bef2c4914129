"""From where each file's program finds its modules, and under which names: what its imports show of `sys.path`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..project import probes
from ..project.import_scan import Imported
from ..project.imports import imported_in, reachable
from ..pyanalysis.quiet_ast import parsed

BUILD_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


@dataclass(frozen=True, slots=True)
class Way:
    """One way in which a file is loaded."""

    roots: frozenset[Path]
    """The folders that are on the search path then, as far as imports show it."""
    package: tuple[str, ...]
    """The package that the file belongs to when it is loaded so; empty for a script, or a module beside one."""


class SearchPath:
    """Answers from the import statements of the program's files; `graph` tells which of them each file imports."""

    def __init__(self, graph: Mapping[Path, Sequence[Path]], texts: Mapping[Path, str]) -> None:
        self._graph = graph
        self._texts = texts
        self._importers: dict[Path, list[Path]] = {}
        for path, targets in graph.items():
            for target in targets:
                self._importers.setdefault(target, []).append(path)
        self._folders: dict[Path, Path] = {}
        self._named: dict[Path, bool] = {}
        self._imported_from: dict[Path, set[Path]] = {}
        self._found_from: dict[tuple[Path, Path], Path | None] = {}
        self._statements: dict[Path, tuple[Imported, ...]] = {}
        self._own_roots: dict[Path, list[Path]] = {}
        self._shown: dict[Path, set[Path]] = {}
        self._scripts: dict[Path, bool] = {}
        self._ways: dict[Path, frozenset[Way]] = {}

    def folder(self, path: Path) -> Path:
        """The folder from which a file is imported; of a script, that from which it imports."""
        if path not in self._folders:
            self._folders[path] = path.parent  # for files that import each other
            self._folders[path] = self._folder(path)
        return self._folders[path]

    def imported_from(self, folder: Path) -> set[Path]:
        """The other folders whose modules are imported by those that are found from `folder`."""
        if folder not in self._imported_from:
            self._imported_from[folder] = {
                found
                for path, targets in self._graph.items()
                if self.folder(path) == folder
                for target in targets
                if (found := self.folder(target)) != folder
            }
        return self._imported_from[folder]

    def packages_of(self, path: Path, start: Path) -> set[Path]:
        """The folders in `start` that hold the modules which a file imports."""
        inside = (
            target.relative_to(start).parts for target in self._graph.get(path, ()) if target.is_relative_to(start)
        )
        return {start / parts[0] for parts in inside if len(parts) > 1}

    def is_imported_from_elsewhere(self, folder: Path) -> bool:
        """Whether modules that lie in a folder are imported by scripts that start in another."""
        return any(folder in self.imported_from(other) for other in {self.folder(path) for path in self._graph})

    def ways(self, path: Path) -> frozenset[Way]:
        """How a file is loaded, as far as the program shows it: by each import of it, and as a script."""
        if path not in self._ways:
            self._ways[path] = frozenset()  # for files that import each other
            self._ways[path] = frozenset(self._ways_of(path))
        return self._ways[path]

    def own_roots(self, path: Path) -> list[Path]:
        """The folders from which a file's own imports find the program's modules by absolute names."""
        if path not in self._own_roots:
            found = (self._between(path, target) for target in self._graph.get(path, ()))
            self._own_roots[path] = list(dict.fromkeys(root for root in found if root is not None))
        return self._own_roots[path]

    def _shown_roots(self, path: Path) -> set[Path]:
        """Those of them that have to be on the search path, which an installed package does not need."""
        if path not in self._shown:
            found = ((target, self._between(path, target)) for target in self._graph.get(path, ()))
            named = {(root, target) for target, root in found if root is not None}
            self._shown[path] = {root for root, target in named if not is_installed_package(root, target)}
        return self._shown[path]

    def own_names(self, path: Path) -> frozenset[str]:
        """The first names of the program's modules that a file imports: `utils` of `from utils.data import load`."""
        targets = self._graph.get(path, ())
        found = (
            target.relative_to(root) for root in self.own_roots(path) for target in targets if root in target.parents
        )
        return frozenset(each.with_suffix("").parts[0] for each in found)

    def imports_relatively(self, path: Path) -> bool:
        return any(found.level for found in self._of(path))

    def starts(self, folders: Sequence[Path], users: Sequence[Path]) -> bool:
        """Whether importing from packages runs one of the files, or what imports one of them, a second time."""
        inits = [each / "__init__.py" for each in folders if each / "__init__.py" in self._graph]
        return not reachable(inits, self._graph).isdisjoint(users)

    def _ways_of(self, path: Path) -> Iterator[Way]:
        for importer in self._importers.get(path, ()):
            outer = self.ways(importer)
            root = self._between(importer, path)
            if root is not None:
                above = {way.roots for way in outer} or {frozenset[Path]()}
                yield from (Way(roots | {root}, path.relative_to(root).parts[:-1]) for roots in above)
            if self._is_relative(importer, path):
                for way in outer:
                    if way.package:
                        base = importer.parents[len(way.package) - 1].parent
                        if path.is_relative_to(base):
                            yield Way(way.roots, path.relative_to(base).parts[:-1])
        if self.is_script(path) or path not in self._importers:
            # What a script imports must find its own imports too.
            run = reachable([path], self._graph)
            own = {root for each in run for root in self.own_roots(each)}
            roots = own or {self.folder(path)}
            shown = {root for each in run for root in self._shown_roots(each)}
            # What is installed is found from anywhere; one of a package that imports nothing of it is none of a script.
            if shown < roots and (own or self.is_script(path)):
                roots = shown or {path.parent}
            folder = self.folder(path)
            if refuses_import(path.parent):
                roots.add(path.parent)  # nothing but a script can lie there
            if not any(map(path.is_relative_to, roots)):
                # Beside all that it imports: pytest puts the folder of a test there, and Python that of a script.
                roots.add((root_package(path.parent) or path).parent if _is_test(path) else path.parent)
            package = root_package(path.parent) if self.imports_relatively(path) else None
            inside = path.relative_to(folder).parts[:-1] if path.is_relative_to(folder) else ()
            yield Way(frozenset(roots), inside if package is not None else ())
            if package is not None and not inside:  # `except ImportError: from wrap import build`: run as both
                yield Way(frozenset({package.parent}), path.relative_to(package.parent).parts[:-1])

    def _is_relative(self, importer: Path, target: Path) -> bool:
        stem = target.parent if target.name == "__init__.py" else target.with_suffix("")
        for found in self._of(importer):
            if found.level:
                base = importer.parents[found.level - 1].joinpath(*(found.module or "").split("."))
                if stem == base or any(stem == base / name for name in found.names):
                    return True
        return False

    def is_script(self, path: Path) -> bool:
        """Whether it asks for `__name__`: nothing but a script has to."""
        if path not in self._scripts:
            text = self._texts.get(path, "")
            tree = parsed(text) if "__name__" in text else None
            tests = (node.test for node in (tree.body if tree is not None else ()) if isinstance(node, ast.If))
            names = (node for test in tests for node in ast.walk(test) if isinstance(node, ast.Name))
            self._scripts[path] = any(name.id == "__name__" for name in names)
        return self._scripts[path]

    def _folder(self, path: Path) -> Path:
        for importer in self._importers.get(path, ()):
            found = self._between(importer, path)
            if found is not None:
                return found
        for importer in self._importers.get(path, ()):
            if any(found.level for found in self._of(importer)) and path.is_relative_to(self.folder(importer)):
                return self.folder(importer)
        package = root_package(path.parent)
        if package is None:
            return path.parent
        # A script inside a package can be run from there, or as a module of it: its own imports tell.
        own = [target for target in self._graph.get(path, ()) if target.is_relative_to(package)]
        found = next((root for target in own if (root := self._between(path, target))), None)
        relative = any(statement.level for statement in self._of(path))
        return found or (package.parent if relative or self._is_named(package) else path.parent)

    def _is_named(self, package: Path) -> bool:
        """Whether anything of a package is imported."""
        if package not in self._named:
            members = (each for each in self._graph if each.is_relative_to(package))
            self._named[package] = any(self._importers.get(each) for each in members)
        return self._named[package]

    def _between(self, importer: Path, target: Path) -> Path | None:
        """The folder in which `importer` finds `target` by an absolute name."""
        key = (importer, target)
        if key not in self._found_from:
            self._found_from[key] = self._find_from(importer, target)
        return self._found_from[key]

    def _find_from(self, importer: Path, target: Path) -> Path | None:
        """By the longest name that fits: `import torch` does not mean the `torch` of `app.torch.data`."""
        stem = (target.parent if target.name == "__init__.py" else target.with_suffix("")).parts
        longest = 0
        for found in self._of(importer):
            if found.level or not found.module:
                continue
            dotted = tuple(found.module.split("."))
            # `import config.model` runs the package `config` too.
            packages = [dotted[:length] for length in range(1, len(dotted))] if target.name == "__init__.py" else []
            fits = (dotted, *packages, *((*dotted, name) for name in found.names))
            longest = max([longest, *(len(parts) for parts in fits if stem[-len(parts) :] == parts)])
        return Path(*stem[:-longest]) if longest else None

    def _of(self, path: Path) -> tuple[Imported, ...]:
        if path not in self._statements:
            self._statements[path] = imported_in(self._texts.get(path, "").encode(errors="replace"))
        return self._statements[path]


def is_installed(folder: Path) -> bool:
    """Whether the packages in a folder are found wherever a program starts."""
    return any(probes.is_file(folder / name) for name in BUILD_FILES)


def is_installed_package(root: Path, path: Path) -> bool:
    """Whether a file lies in a package that is found from a folder wherever a program starts.

    Of the other folders beside it, such as scripts, nothing is installed.
    """
    parts = path.relative_to(root).parts
    return is_installed(root) and len(parts) > 1 and is_package(root / parts[0])


def _is_test(path: Path) -> bool:
    return path.stem.startswith("test_") or path.stem.endswith("_test")


def is_package(folder: Path) -> bool:
    return probes.is_file(folder / "__init__.py")


def root_package(folder: Path) -> Path | None:
    """The outermost package that a folder lies in: one whose name could be imported."""
    found = None
    while is_package(folder) and folder.name.isidentifier() and not refuses_import(folder):
        found, folder = folder, folder.parent
    return found


def refuses_import(folder: Path) -> bool:
    """Whether the `__init__.py` of a folder of scripts raises, so that nothing is imported by the folder's name."""
    return probes.raises(folder / "__init__.py")
