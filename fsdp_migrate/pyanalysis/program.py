"""A program: its files, parsed when they are first asked for."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import libcst as cst

from .calls import DEFERRING
from .depth import TooDeep
from .library import Library
from .symbols import Resolve, Symbols
from .tree import Tree

_WORD = re.compile(r"\w+")
_DEFINED = re.compile(r"def\b[\s\\]*(\w+)")
_GAP = r"(?:[\s\\)]|#[^\n]*\n)*"
"""What can stand between a name and the bracket behind it."""
_CALLED_ON_SUPER = re.compile(rf"super\([^()]*\)\.(\w+)(?={_GAP}\()")
_BEHIND = (r"[\s\\)]*(\w+)\b", r"(?:\n[^\n]*#|[\s\\)])*(\w+)\b")
"""A gap and the name before it, in a text that is read from its end; the gap with comments in it, and without."""
_NO_CALL = r"(?!\s+fed\b|\.\)[^()]*\(repus\b)"
_CALLED = [re.compile(rf"\({behind}{_NO_CALL}") for behind in _BEHIND]
_FILLED = [re.compile(behind) for behind in _BEHIND]
_FILLS = re.compile(
    r"\[\s*(?:(['\"])([^'\"\\\n]*)\1\s*\])?"
    r"|\.\s*(?:add|append|appendleft|extend|insert|setdefault|update)\b|[+|]="
)
_SET = re.compile(r"\.(?<!\bself\.)(?<!\bcls\.)\s*(\w+)\b[ \t\\)\]]*(?:=(?!=)|:|,[^=\n]*=(?!=)|\bin\b)")
"""An attribute that is set, of anything but `self`. Patterns that begin with a letter are found at the speed of C."""
_MODULE_ADDED = re.compile(r"add_module\(\s*['\"](\w+)")
_BASES = re.compile(r"class\s+\w+\s*\((.*?)\)\s*:", re.DOTALL)
_RENAMED = re.compile(r"as\b(?<=\sas)")
_FAR = 200
"""Characters in which the name stands that an `as` gives another one."""

ANY_KEY = object()


class Program:
    """The files one `rewrite` looks at together. Nothing is imported or run; parsing is on demand."""

    def __init__(
        self,
        texts: Mapping[Path, str],
        resolve: Resolve,
        library: Library,
        width_of: Callable[[Path], int | None] = lambda path: None,
    ) -> None:
        """`width_of` tells how long the lines of a file may be, where its project says so."""
        self.texts = texts
        self._width_of = width_of
        self.library = library
        self._trees: dict[Path, Tree | None] = {}
        self._mentioning: dict[tuple[str, ...], list[Tree]] = {}
        self._setting: dict[str, list[Tree]] = {}
        self.errors: dict[Path, str] = {}
        self.symbols = Symbols(self.tree, resolve, library)

    def tree(self, path: Path) -> Tree | None:
        """The parsed file; None when it is not the program's, or not Python (then it is in `errors`)."""
        if path not in self._trees:
            self._trees[path] = self._parse(path)
        return self._trees[path]

    def mentioning(self, *words: str, within: Collection[Path] | None = None) -> Sequence[Tree]:
        """The files whose text holds one of these identifiers, in the program's order."""
        if within is not None:
            return list(self.parsed({path for word in words for path in self._words.get(word, ()) if path in within}))
        if words not in self._mentioning:
            self._mentioning[words] = list(self.parsed({path for word in words for path in self._words.get(word, ())}))
        return self._mentioning[words]

    def parsed(self, paths: Collection[Path]) -> Iterator[Tree]:
        """Those of these files that are Python, in the program's order."""
        return self._parsed(sorted(paths, key=self._order.__getitem__))

    def defining(self, name: str) -> Iterator[Tree]:
        """The files in which a function or method of this name is defined, in the program's order."""
        return self._parsed(self._defined.get(name, ()))

    def defines(self, name: str) -> bool:
        """Whether any file defines a function or method of this name."""
        return name in self._defined

    def calling(self, names: Collection[str], through_super: bool) -> Iterator[Tree]:
        """The files that can hold a call of something with one of these names, now or later, in the program's order.

        `super().name()` counts only with `through_super`: every class with a base calls its `__init__` that way.
        """
        paths = {path for name in names for path in self._called.get(name, ())}
        paths |= {path for name in names for path in self._words.get(name, ()) if path in self._deferring}
        if through_super:
            paths |= {path for name in names for path in self._called_on_super.get(name, ())}
        return self.parsed(paths)

    def filling(self, name: str, key: object) -> Iterable[Path]:
        """The files that can store into a container of this name, under a key.

        `key` is a literal, `ANY_KEY`, or None for what has no literal key (`append`, a slice, a variable).
        """
        by_key = self._filled.get(name, {})
        found = by_key.values() if key is ANY_KEY else (by_key.get(None, ()), by_key.get(key, ()))
        return {path for paths in found for path in paths}

    def setting(self, name: str) -> Sequence[Tree]:
        """The files that can set an attribute of this name, of anything but `self`, in the program's order."""
        if name not in self._setting:
            self._setting[name] = list(self._parsed(self._set.get(name, ())))
        return self._setting[name]

    def inheriting(self, name: str) -> Iterator[Tree]:
        """The files that can hold a class with a base of this name, in the program's order."""
        return self._parsed(self._inherited.get(name, ()))

    def mentions(self, *words: str, within: Collection[Path] | None = None) -> bool:
        """Whether the text of any file holds one of these identifiers."""
        return any(within is None or path in within for word in words for path in self._words.get(word, ()))

    @cached_property
    def _order(self) -> Mapping[Path, int]:
        return {path: place for place, path in enumerate(self.texts)}

    @cached_property
    def _words(self) -> Mapping[str, Sequence[Path]]:
        """Which files hold an identifier: every caller of a function is found this way, so it is read off once."""
        return self._index(_WORD)

    @cached_property
    def _defined(self) -> Mapping[str, Sequence[Path]]:
        return self._index(_DEFINED)

    @cached_property
    def _called(self) -> Mapping[str, Sequence[Path]]:
        holders: dict[str, list[Path]] = defaultdict(list)
        for path, text in self.texts.items():
            for word in {word for pattern in _CALLED for word in pattern.findall(text[::-1])}:
                holders[word[::-1]].append(path)
        return holders

    @cached_property
    def _deferring(self) -> frozenset[Path]:
        """The files that can hand a function to what calls it."""
        return frozenset(path for word in DEFERRING for path in self._words.get(word, ()))

    @cached_property
    def _called_on_super(self) -> Mapping[str, Sequence[Path]]:
        return self._index(_CALLED_ON_SUPER)

    @cached_property
    def _filled(self) -> Mapping[str, Mapping[object, Sequence[Path]]]:
        """Which files can store under which literal key into a container of a name; None: there is no literal key."""
        holders: dict[str, dict[object, list[Path]]] = defaultdict(lambda: defaultdict(list))
        for path, text in self.texts.items():
            for name, key in set(_filled_in(text)):
                holders[name][key].append(path)
        return holders

    @cached_property
    def _set(self) -> Mapping[str, Sequence[Path]]:
        holders: dict[str, list[Path]] = defaultdict(list)
        for path, text in self.texts.items():
            for word in {*_SET.findall(text), *_MODULE_ADDED.findall(text)}:
                holders[word].append(path)
        return holders

    @cached_property
    def _inherited(self) -> Mapping[str, Sequence[Path]]:
        holders: dict[str, list[Path]] = defaultdict(list)
        for path, text in self.texts.items():
            for word in set(_WORD.findall(" ".join(_inherited_in(text)))):
                holders[word].append(path)
        return holders

    def _index(self, pattern: re.Pattern[str]) -> Mapping[str, Sequence[Path]]:
        """The files in which the pattern's group matches a word, in the program's order."""
        holders: dict[str, list[Path]] = defaultdict(list)
        for path, text in self.texts.items():
            for word in set(pattern.findall(text)):
                holders[word].append(path)
        return holders

    def _parsed(self, paths: Iterable[Path]) -> Iterator[Tree]:
        for path in paths:
            tree = self.tree(path)
            if tree is not None:
                yield tree

    def _parse(self, path: Path) -> Tree | None:
        text = self.texts.get(path)
        if text is None:
            return None
        try:
            return Tree(path, text, self._width_of(path))
        except cst.ParserSyntaxError as error:
            self.errors[path] = f"line {error.raw_line}: {error.message}"
        except TooDeep:
            self.errors[path] = "expressions are nested too deeply to be followed"
        return None


def _filled_in(text: str) -> Iterator[tuple[str, str | None]]:
    """What is before a store into a container, and the literal key."""
    backwards = text[::-1]
    for store in _FILLS.finditer(text):
        for pattern in _FILLED:
            before = pattern.match(backwards, len(text) - store.start())
            if before is not None:
                yield before.group(1)[::-1], store.group(2)


def _inherited_in(text: str) -> Iterator[str]:
    """What can name a base: bases, what is imported under another name, and what an assignment gives one."""
    yield from _BASES.findall(text)
    for found in _RENAMED.finditer(text):
        yield from text[max(0, found.start() - _FAR) : found.start()].split()[-1:]
    for line in text.split("\n"):
        if "=" in line and "(" not in line:
            name, _, value = line.partition("=")
            if name.strip().isidentifier() and ")" not in value and not value.startswith("="):
                yield value
