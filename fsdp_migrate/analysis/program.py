"""A program: its files, parsed when they are first asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import libcst as cst

from .symbols import Resolve, Symbols
from .tree import Tree


class Program:
    """The files one `rewrite` looks at together. Nothing is imported or run; parsing is on demand."""

    def __init__(self, texts: Mapping[Path, str], resolve: Resolve) -> None:
        self.texts = texts
        self._trees: dict[Path, Tree | None] = {}
        self._mentions: dict[str, frozenset[Path]] = {}
        self.errors: dict[Path, str] = {}
        self.symbols = Symbols(self.tree, resolve)

    def tree(self, path: Path) -> Tree | None:
        """The parsed file; None when it is not the program's, or not Python (then it is in `errors`)."""
        if path not in self._trees:
            self._trees[path] = self._parse(path)
        return self._trees[path]

    def mentioning(self, *words: str) -> list[Tree]:
        """The files whose text holds one of these identifiers, in the program's order."""
        paths = {path for word in words for path in self._holders(word)}
        trees = (self.tree(path) for path in self.texts if path in paths)
        return [tree for tree in trees if tree is not None]

    def mentions(self, *words: str, but: Path | None = None) -> bool:
        """Whether the text of any file (except `but`) holds one of these identifiers."""
        return any(path != but for word in words for path in self._holders(word))

    def _holders(self, word: str) -> frozenset[Path]:
        """The files that hold an identifier; looked for once, since every caller of a function is found this way."""
        if word not in self._mentions:
            pattern = re.compile(rf"\b{re.escape(word)}\b")
            found = (path for path, text in self.texts.items() if word in text and pattern.search(text))
            self._mentions[word] = frozenset(found)
        return self._mentions[word]

    def _parse(self, path: Path) -> Tree | None:
        text = self.texts.get(path)
        if text is None:
            return None
        try:
            return Tree(path, text)
        except cst.ParserSyntaxError as error:
            self.errors[path] = f"line {error.raw_line}: {error.message}"
            return None
