"""The parts of string literals, read off their text: what is short of quotes and braces within braces.

Not every `ast` tells where the parts of an f-string stand, and LibCST's parser is slow to start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .brackets import STRING, Brackets
from .unknown import Unknown

_QUOTES = re.compile(r"([A-Za-z]*)(\"\"\"|'''|\"|')")
_HOLE = re.compile(r"\{([^{}\"'\\!:=#]+)(?:!([rsa]))?(?::([^{}\"']+))?\}")


@dataclass(frozen=True, slots=True)
class Literal:
    """One string token: what it opens and closes with, and where it stands."""

    start: int
    end: int
    opening: str
    closing: str

    @property
    def is_formatted(self) -> bool:
        return "f" in self.opening.lower()


@dataclass(frozen=True, slots=True)
class Hole:
    """`{value!r:>8}`: where it stands, its expression, its conversion and where its format stands."""

    start: int
    end: int
    expression: tuple[int, int]
    conversion: str | None
    form: tuple[int, int] | None


def literals(text: str, start: int, end: int, brackets: Brackets) -> list[Literal]:
    """The strings that stand beside each other in a part of a text."""
    found = []
    at = start
    while at < end:
        token = STRING.match(text, at)
        quotes = _QUOTES.match(text, at)
        if token is None or quotes is None or token.end() > end:
            raise Unknown
        found.append(Literal(at, token.end(), quotes.group(), quotes[2]))
        at = brackets.skip_gap(token.end())
    return found


def parts(text: str, string: Literal) -> Iterator[tuple[int, int] | Hole]:
    """The texts and the holes of an f-string. Raises Unknown where its braces are not so plain."""
    at, end = string.start + len(string.opening), string.end - len(string.closing)
    if "\\N" in text[at:end]:
        raise Unknown
    while at < end:
        brace = min(found for found in (text.find("{", at, end), text.find("}", at, end), end) if found >= 0)
        if brace > at:
            yield at, brace
        if brace == end:
            return
        hole = _HOLE.match(text, brace, end)
        if hole is None:
            raise Unknown
        yield Hole(brace, hole.end(), hole.span(1), hole[2], hole.span(3) if hole[3] else None)
        at = hole.end()
