"""A program: its files, parsed when they are first asked for."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import libcst as cst

from .calls import DEFERRING
from .depth import TooDeep
from .library import Library
from .starred import Starred
from .symbols import Resolve, Symbols
from .tree import Tree

K = TypeVar("K", bound=Hashable)

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
_CLASS = re.compile(r"\bclass\s+(\w+)")
_BASES = re.compile(r"class\s+\w+\s*\((.*?)\)\s*:", re.DOTALL)
_RENAMED = re.compile(r"as\b(?<=\sas)")
_FAR = 200
"""Characters in which the names stand that an `as` connects."""
_LAST_WORD = re.compile(r"(\w+)[\s\\]*$")
_NEXT_WORD = re.compile(r"[\s\\]*(\w+)")

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
        self.symbols = Symbols(self.tree, resolve, library, Starred(texts, resolve, library.exports).brings)

    def tree(self, path: Path) -> Tree | None:
        """The parsed file; None when it is not the program's, or not Python (then it is in `errors`)."""
        if path not in self._trees:
            self._trees[path] = self._parse(path)
        return self._trees[path]

    def mentioning(self, *words: str, within: Collection[Path] | None = None) -> Sequence[Tree]:
        """The files whose text holds one of these identifiers, in the program's order."""
        if within is not None:
            return list(self._parsed(place for place in self._holding(words) if self._paths[place] in within))
        if words not in self._mentioning:
            self._mentioning[words] = list(self._parsed(self._holding(words)))
        return self._mentioning[words]

    def parsed(self, paths: Collection[Path]) -> Iterator[Tree]:
        """Those of these files that are Python, in the program's order."""
        return self._parsed(map(self._order.__getitem__, paths))

    def place(self, path: Path) -> int:
        """Of a file among the others."""
        return self._order[path]

    def holder(self, node: cst.CSTNode) -> Tree:
        """The file that a node stands in."""
        return next(tree for tree in self._trees.values() if tree is not None and node in tree.order)

    def defining(self, name: str) -> Iterator[Tree]:
        """The files in which a function or method of this name is defined, in the program's order."""
        return self._parsed(self._defined.get(name, ()))

    def defines(self, name: str) -> bool:
        """Whether any file defines a function or method of this name."""
        return name in self._defined

    def known_as(self, *names: str) -> set[str]:
        """The names, and what the program's imports call them otherwise: `import f as g`, there or further on."""
        known = {*names}
        growing = list(known)
        for name in growing:
            new = self._renamed.get(name, set()) - known
            known |= new
            growing += new
        return known

    def wrapping(self) -> Sequence[Tree]:
        """The files that hold the name of the library's wrapper, or the one that some file imports it under."""
        return self.mentioning(*self._wrapper_names)

    @cached_property
    def _wrapper_names(self) -> Sequence[str]:
        name = self.library.wrapper
        renamed = re.compile(rf"\b{name}\s+as\s+(\w+)[ \t]*(?=[,)\\#;]|$)", re.MULTILINE)
        others = (each for text in self.texts.values() if name in text for each in renamed.findall(text))
        return (name, *sorted({*others} - {name}))

    def calling(self, names: Collection[str], through_super: bool) -> Iterator[Tree]:
        """The files that can hold a call of something with one of these names, now or later, in the program's order.

        `super().name()` counts only with `through_super`: every class with a base calls its `__init__` that way.
        """
        places = {place for name in names for place in self._called.get(name, ())}
        places |= self._holding(names) & self._deferring
        if through_super:
            places |= {place for name in names for place in self._called_on_super.get(name, ())}
        return self._parsed(places)

    def filling(self, name: str, key: object) -> Collection[Path]:
        """The files that can store into a container of this name, under a key.

        `key` is a literal, `ANY_KEY`, or None for what has no literal key (`append`, a slice, a variable).
        """
        if key is ANY_KEY:
            keys: Iterable[object] = self._keys_filled.get(name, ())
        else:
            keys = {None, key}
        return {self._paths[place] for each in keys for place in self._filled.get((name, each), ())}

    def setting(self, name: str) -> Sequence[Tree]:
        """The files that can set an attribute of this name, of anything but `self`, in the program's order."""
        if name not in self._setting:
            self._setting[name] = list(self._parsed(self._set.get(name, ())))
        return self._setting[name]

    def inheriting(self, name: str) -> Iterator[Tree]:
        """The files that can hold a class with a base of this name, in the program's order."""
        return self._parsed(self._inherited.get(name, ()))

    def defines_class(self, name: str) -> bool:
        """Whether any file can define a class of this name."""
        return name in self._classes

    def names_anew(self, tree: Tree, name: str) -> bool:
        """Whether a file may have another name for a class of this one."""
        return self._order[tree.path] in self._named_anew.get(name, ())

    def mentions(self, *words: str, within: Collection[Path] | None = None) -> bool:
        """Whether the text of any file holds one of these identifiers."""
        found = (place for word in words for place in self._words.get(word, ()))
        return any(within is None or self._paths[place] in within for place in found)

    @cached_property
    def _paths(self) -> Sequence[Path]:
        """By the places of the files in the program's order, which its indexes speak of."""
        return list(self.texts)

    @cached_property
    def _order(self) -> Mapping[Path, int]:
        return {path: place for place, path in enumerate(self._paths)}

    def _holding(self, words: Iterable[str]) -> set[int]:
        return {place for word in words for place in self._words.get(word, ())}

    @cached_property
    def _words(self) -> Mapping[str, Sequence[int]]:
        """Which files hold an identifier: every caller of a function is found this way, so it is read off once."""
        return self._index(_WORD.findall)

    @cached_property
    def _renamed(self) -> Mapping[str, Set[str]]:
        others: dict[str, set[str]] = defaultdict(set)
        for text in self.texts.values():
            for name, other in _renamed_in(text):
                others[name].add(other)
        return others

    @cached_property
    def _defined(self) -> Mapping[str, Sequence[int]]:
        return self._index(_DEFINED.findall)

    @cached_property
    def _called(self) -> Mapping[str, Sequence[int]]:
        return self._index(_called_in)

    @cached_property
    def _deferring(self) -> Set[int]:
        """The files that can hand a function to what calls it."""
        return frozenset(self._holding(DEFERRING))

    @cached_property
    def _called_on_super(self) -> Mapping[str, Sequence[int]]:
        return self._index(_CALLED_ON_SUPER.findall)

    @cached_property
    def _filled(self) -> Mapping[tuple[str, object], Sequence[int]]:
        """Which files can store under which literal key into a container of a name; None: there is no literal key."""
        return self._index(_filled_in)

    @cached_property
    def _keys_filled(self) -> Mapping[str, Sequence[object]]:
        keys: dict[str, list[object]] = defaultdict(list)
        for name, key in self._filled:
            keys[name].append(key)
        return keys

    @cached_property
    def _set(self) -> Mapping[str, Sequence[int]]:
        return self._index(lambda text: [*_SET.findall(text), *_MODULE_ADDED.findall(text)])

    @cached_property
    def _inherited(self) -> Mapping[str, Sequence[int]]:
        return self._index(lambda text: _WORD.findall(" ".join(_inherited_in(text))))

    @cached_property
    def _classes(self) -> frozenset[str]:
        return frozenset(name for text in self.texts.values() for name in _CLASS.findall(text))

    @cached_property
    def _named_anew(self) -> Mapping[str, Sequence[int]]:
        return self._index(lambda text: _WORD.findall(" ".join(_named_anew_in(text))))

    def _index(self, found_in: Callable[[str], Iterable[K]]) -> Mapping[K, Sequence[int]]:
        """In which files something is found, in the program's order."""
        holders: dict[K, list[int]] = defaultdict(list)
        for place, text in enumerate(self.texts.values()):
            for found in set(found_in(text)):
                holders[found].append(place)
        return holders

    def _parsed(self, places: Iterable[int]) -> Iterator[Tree]:
        for place in sorted(places):
            tree = self.tree(self._paths[place])
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


def _called_in(text: str) -> Iterator[str]:
    backwards = text[::-1]
    for pattern in _CALLED:
        yield from (word[::-1] for word in pattern.findall(backwards))


def _filled_in(text: str) -> Iterator[tuple[str, str | None]]:
    """What is before a store into a container, and the literal key."""
    backwards = text[::-1]
    for store in _FILLS.finditer(text):
        for pattern in _FILLED:
            before = pattern.match(backwards, len(text) - store.start())
            if before is not None:
                yield before.group(1)[::-1], store.group(2)


def _renamed_in(text: str) -> Iterator[tuple[str, str]]:
    """`name as other`: what may be imported under another name, and that name."""
    for found in _RENAMED.finditer(text):
        name = _LAST_WORD.search(text, max(0, found.start() - _FAR), found.start())
        other = _NEXT_WORD.match(text, found.end())
        if name is not None and other is not None and name[1] != other[1]:
            yield name[1], other[1]


def _inherited_in(text: str) -> Iterator[str]:
    """What can name a base: bases, and what gets another name."""
    yield from _BASES.findall(text)
    yield from _named_anew_in(text)


def _named_anew_in(text: str) -> Iterator[str]:
    """What is imported under another name, and what an assignment gives one."""
    yield from (name for name, _ in _renamed_in(text))
    for line in text.split("\n"):
        if "=" in line and "(" not in line:
            name, _, value = line.partition("=")
            if name.strip().isidentifier() and ")" not in value and not value.startswith("="):
                yield value
