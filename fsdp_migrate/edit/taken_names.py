"""Names that the files of a program take from each other: what a file no longer uses, another may import from there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import libcst as cst

from ..pyanalysis.definitions import last_name
from ..pyanalysis.program import Program
from ..pyanalysis.symbols import dotted_name
from ..pyanalysis.tree import Tree
from .import_layout import Statement
from .imports import Tidied, aliases, bound_by, is_read, names_at_top

_Taken = tuple[Path, cst.ImportFrom, cst.ImportAlias]
"""The file that imports a name, and where."""


class TakenNames:
    """What the files of a program import from those whose imports are tidied."""

    def __init__(
        self,
        program: Program,
        tidied: Mapping[Path, Tidied],
        group: Collection[Path],
        graph: Mapping[Path, Sequence[Path]],
    ) -> None:
        self._program = program
        self._tidied = dict(tidied)
        self._importing: dict[Path, set[Path]] = {}
        for path in group:
            for other in graph.get(path, ()):
                self._importing.setdefault(other, set()).add(path)

    def settled(self) -> dict[Path, Tidied]:
        """The files: a name that another one reads is kept, and one that is only handed on goes there, too."""
        lost = [(path, name) for path, each in self._tidied.items() for name in _lost(each)]
        for path, name in lost:  # grows
            if self._is_needed(path, name):
                self._tidied[path] = _keeping(self._tidied[path], name)
                continue
            for other, statement, alias in list(self._takers(path, name)):
                self._tidied[other] = _without(self._after(other), statement, alias)
                lost.append((other, bound_by(alias)))
        return self._tidied

    def lacking(self) -> Iterator[tuple[Path, str]]:
        """What another file still takes from one that no longer has it."""
        for path, each in self._tidied.items():
            left = names_at_top(each.tree, each.removals) | {item.local for item in each.additions}
            gone = [name for name in each.before.scope.bindings if name not in left]
            yield from ((path, name) for name in gone if self._is_needed(path, name))

    def _is_needed(self, path: Path, name: str, seen: frozenset[tuple[Path, str]] = frozenset()) -> bool:
        """Whether the new text of another file reads a name of this one, or of one that hands it on."""
        if (path, name) in seen:
            return False
        seen |= {(path, name)}
        for other, statement, alias in self._takers(path, name):
            tree, local = self._after(other).tree, bound_by(alias)
            scope = tree.scope_of[statement]
            if is_read(tree, scope, local) or (scope is tree.scope and self._is_needed(other, local, seen)):
                return True
        for tree in self._mentioning(path, name):
            if self._takes_all(tree, path) and (
                is_read(tree, tree.scope, name) or self._is_needed(tree.path, name, seen)
            ):
                return True
            modules = set(self._modules(tree, path))
            if any(last_name(each.value) in modules for each in tree.attributes(name)):
                return True
        return False

    def _takers(self, path: Path, name: str) -> Iterator[_Taken]:
        for tree in self._mentioning(path, name):
            removals = self._after(tree.path).removals
            for statement, alias in aliases(tree):
                is_one = isinstance(statement, cst.ImportFrom) and dotted_name(alias.name) == name
                if is_one and isinstance(statement, cst.ImportFrom) and alias not in removals.get(statement, ()):
                    if self._source(tree, statement) == path:
                        yield tree.path, statement, alias

    def _source(self, tree: Tree, statement: Statement, name: str = "") -> Path | None:
        """The file that an import is from, or the one that it has by a name, as a module."""
        if isinstance(statement, cst.Import):
            return self._program.symbols.file_of(tree.path, name, 0)
        module = dotted_name(statement.module) if statement.module is not None else ""
        dotted = ".".join(filter(None, [module, name]))
        return self._program.symbols.file_of(tree.path, dotted or None, len(statement.relative))

    def _takes_all(self, tree: Tree, path: Path) -> bool:
        stars = (each for each in tree.nodes(cst.ImportFrom) if isinstance(each.names, cst.ImportStar))
        return any(self._source(tree, statement) == path for statement in stars)

    def _modules(self, tree: Tree, path: Path) -> Iterator[str]:
        """What a file calls another one as a module: `own` of `import package.own` and of `from package import own`."""
        for statement, alias in aliases(tree):
            name = dotted_name(alias.name)
            if self._source(tree, statement, name) == path:
                yield bound_by(alias) if alias.asname is not None else name.split(".")[-1]

    def _mentioning(self, path: Path, name: str) -> list[Tree]:
        """The new texts of the files that import a file and hold a name."""
        found = self._program.mentioning(name, within=self._importing.get(path, set()))
        return [self._after(tree.path).tree for tree in found]

    def _after(self, path: Path) -> Tidied:
        if path in self._tidied:
            return self._tidied[path]
        tree = self._program.tree(path)
        assert tree is not None
        return Tidied(tree, tree, {}, ())


def _lost(tidied: Tidied) -> list[str]:
    """The names that the top of a file has no longer."""
    tree = tidied.tree
    gone = [(statement, alias) for statement, found in tidied.removals.items() for alias in found]
    names = [bound_by(alias) for statement, alias in gone if tree.scope_of[statement] is tree.scope]
    left = names_at_top(tree, tidied.removals) | {item.local for item in tidied.additions}
    return [name for name in dict.fromkeys(names) if name not in left]


def _keeping(tidied: Tidied, name: str) -> Tidied:
    kept = {
        statement: [alias for alias in found if bound_by(alias) != name] for statement, found in tidied.removals.items()
    }
    removals = {statement: found for statement, found in kept.items() if found}
    return replace(tidied, removals=removals, kept=tidied.kept | {name})


def _without(tidied: Tidied, statement: Statement, alias: cst.ImportAlias) -> Tidied:
    return replace(tidied, removals={**tidied.removals, statement: [*tidied.removals.get(statement, ()), alias]})
