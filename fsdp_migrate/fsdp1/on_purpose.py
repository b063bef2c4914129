"""Which files can hand values to each other: some file imports both, and takes something from them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from ..pyanalysis.closure import Closure
from ..pyanalysis.program import Program
from ..pyanalysis.quiet_ast import parsed, statements


class OnPurpose:
    """The imports of a program without the packages that only run on the way: `import a.b` takes nothing from `a`."""

    def __init__(self, program: Program, graph: Mapping[Path, Sequence[Path]]) -> None:
        """`graph` is what each file loads when it is imported."""
        self._program = program
        self._graph = graph
        self._named: dict[Path, Sequence[Path]] = {}
        self._reached = Closure(self._of)

    def around(self, path: Path) -> frozenset[Path]:
        """All that a file which takes something of this one can take something of."""
        return frozenset[Path]().union(*map(self.reached, self._users.of(path)))

    def meets(self, path: Path, others: frozenset[Path]) -> bool:
        """Whether a file that takes something of this one takes something of another of these."""
        return any(not others.isdisjoint(self.reached(user)) for user in self._users.of(path))

    @cached_property
    def _users(self) -> Closure[Path]:
        importers: dict[Path, set[Path]] = {}
        for path in self._graph:
            for target in self._of(path):
                importers.setdefault(target, set()).add(path)
        return Closure(lambda path: importers.get(path, ()))

    def reached(self, start: Path) -> frozenset[Path]:
        """A file, and all that it takes something of, over others or not."""
        return self._reached.of(start)

    def _of(self, path: Path) -> Sequence[Path]:
        if path not in self._named:
            loaded = self._graph.get(path, ())
            # one that imports nothing leads nowhere: whether it was only run on the way is all the same
            passed = {each for each in loaded if each.name == "__init__.py" and self._graph.get(each)}
            passed -= set(self._taken_from(path)) if passed else set()
            self._named[path] = [each for each in loaded if each not in passed]
        return self._named[path]

    def _taken_from(self, path: Path) -> Iterator[Path]:
        """The files that a file's import statements name, or take names of that are no modules."""
        tree = parsed(self._program.texts.get(path, ""))
        for node in statements(tree) if tree is not None else ():
            if isinstance(node, ast.Import):
                parts = [alias.name.split(".") for alias in node.names]
                modules = [".".join(each[:length]) for each in parts for length in range(1, len(each) + 1)]
                yield from filter(None, (self._file(path, module, 0) for module in modules))
            elif isinstance(node, ast.ImportFrom):
                owner = self._file(path, node.module, node.level)
                names = [".".join(filter(None, [node.module, alias.name])) for alias in node.names]
                inner = [self._file(path, name, node.level) for name in names]
                yield from filter(None, inner)
                if owner is not None and None in inner:
                    yield owner

    def _file(self, path: Path, module: str | None, level: int) -> Path | None:
        return self._program.symbols.file_of(path, module, level)
