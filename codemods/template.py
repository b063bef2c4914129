"""The text of an edit is a template: a hole names a piece of the source, as its own edits leave it.

A hole is written between two NUL characters, which no Python source holds, so that rules can build templates with
f-strings. Nothing is ever found again by searching text.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_HOLE = re.compile("\0([0-9]+):([0-9]+):([01]):([0-9]+)\0")


@dataclass(frozen=True, slots=True)
class Hole:
    """`[start, end)` of a file."""

    start: int
    end: int
    is_lines: bool
    """Whether it names whole lines: what is inserted at their edges belongs to them, and not to their surroundings."""
    file: int
    """Which file it is of: `number`."""

    @property
    def text(self) -> str:
        """The hole as it stands in a template."""
        return f"\0{self.start}:{self.end}:{self.is_lines:d}:{self.file}\0"


def quote(path: Path, span: tuple[int, int], is_lines: bool = False) -> str:
    """A hole for a piece of a file."""
    return Hole(*span, is_lines, number(path)).text


@cache
def number(path: Path) -> int:
    """Stands for a file in a hole, so that one that is put into another file does not pass."""
    return zlib.crc32(path.as_posix().encode())


def pieces(template: str) -> Iterator[str | Hole]:
    """Text and holes, in the order of the template."""
    position = 0
    for found in _HOLE.finditer(template):
        yield template[position : found.start()]
        yield Hole(int(found[1]), int(found[2]), found[3] == "1", int(found[4]))
        position = found.end()
    yield template[position:]


def plain(template: str, text: str) -> str:
    """The template with its holes filled from the source as the user wrote it."""
    if "\0" not in template:
        return template
    return "".join(each if isinstance(each, str) else text[each.start : each.end] for each in pieces(template))


def has_word(piece: str, word: str) -> bool:
    """Whether the tool's own text, between two holes, has an identifier."""
    return word in re.findall(r"\w+", piece)
