"""What `from module import *` can bring: read off the texts, so that few of the files have to be parsed for a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from .closure import Closure

_STAR = re.compile(r"\bfrom[\s\\]*(\.*)[\s\\]*([\w.]*)[\s\\]*import[\s\\(]*\*")
_BOUND = re.compile(
    r"\b(?:def|class|as|for)\b[\s\\(]*(\w+)"
    r"|^[ \t(]*(\w+)(?=[ \t\])]*(?:[=:,\\]|$))"
    r"|[,;:(*][ \t]*(\w+)(?=[ \t\])}]*(?:[=:,]|in\b|$))",
    re.MULTILINE,
)
"""Where a statement can bind a name, and more: a call, or an attribute, binds none."""
_IMPORTED = re.compile(r"\bimport\b([^\n]*)")
_WORD = re.compile(r"\w+(?![ \t]+as\b)")
"""What an import has by a name of its own: `b` of `import a as b`."""


class Starred:
    """Answers for the files of one program."""

    def __init__(
        self,
        texts: Mapping[Path, str],
        resolve: Callable[[Path, str | None, int], Path | None],
        exports: Callable[[str, str], bool] = lambda module, name: False,
    ) -> None:
        """`exports`: whether a star import from a module of the library brings a name."""
        self._texts = texts
        self._resolve = resolve
        self._exports = exports
        self._own: dict[Path, frozenset[str]] = {}
        self._known: dict[Path, frozenset[str]] = {}
        self._libraries: dict[Path, Sequence[str]] = {}
        self._closure = Closure(self._starring)

    def brings(self, path: Path, name: str) -> bool:
        """Whether a file can have a name, by itself or by its own star imports."""
        if path not in self._known:
            self._known[path] = frozenset().union(*map(self._bound, self._closure.of(path)))
        return name in self._known[path] or any(self._exports(module, name) for module in self._outside(path))

    def _outside(self, path: Path) -> Sequence[str]:
        """The modules of libraries that it has star imports from, by itself or by its own."""
        if path not in self._libraries:
            found = (
                (each, star) for each in self._closure.of(path) for star in _STAR.findall(self._texts.get(each, ""))
            )
            outside = [name for each, (dots, name) in found if not dots and self._resolve(each, name, 0) is None]
            self._libraries[path] = outside
        return self._libraries[path]

    def _bound(self, path: Path) -> frozenset[str]:
        if path not in self._own:
            text = self._texts.get(path, "")
            bound = {word for found in _BOUND.findall(text) for word in found}
            imported = {word for line in _IMPORTED.findall(text) for word in _WORD.findall(line)}
            self._own[path] = frozenset(bound | imported)
        return self._own[path]

    def _starring(self, path: Path) -> Iterator[Path]:
        for dots, module in _STAR.findall(self._texts.get(path, "")):
            found = self._resolve(path, module or None, len(dots))
            if found is not None:
                yield found
