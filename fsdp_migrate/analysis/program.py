"""A program: its files, parsed when they are first asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import libcst as cst

from .symbols import Resolve, Symbols
from .tree import Tree


class Program:
    """The files one `rewrite` looks at together. Nothing is imported or run; parsing is on demand."""

    def __init__(self, texts: Mapping[Path, str], resolve: Resolve) -> None:
        self.texts = texts
        self._trees: dict[Path, Tree | None] = {}
        self.errors: dict[Path, str] = {}
        self.symbols = Symbols(self.tree, resolve)

    def tree(self, path: Path) -> Tree | None:
        """The parsed file; None when it is not the program's, or not Python (then it is in `errors`)."""
        if path not in self._trees:
            self._trees[path] = self._parse(path)
        return self._trees[path]

    def mentioning(self, *words: str) -> list[Tree]:
        """The files whose text holds one of these identifiers, in the program's order."""
        pattern = _any_of(words)
        trees = (self.tree(path) for path, text in self.texts.items() if pattern.search(text))
        return [tree for tree in trees if tree is not None]

    def mentions(self, *words: str, but: Path | None = None) -> bool:
        """Whether the text of any file (except `but`) holds one of these identifiers."""
        pattern = _any_of(words)
        return any(pattern.search(text) for path, text in self.texts.items() if path != but)

    def _parse(self, path: Path) -> Tree | None:
        text = self.texts.get(path)
        if text is None:
            return None
        try:
            return Tree(path, text)
        except cst.ParserSyntaxError as error:
            self.errors[path] = f"line {error.raw_line}: {error.message}"
            return None


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile(r"\b(?:" + "|".join(map(re.escape, words)) + r")\b")
