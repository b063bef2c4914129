"""All edits of one file, made on its text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codemods.api import Edit
from codemods.template import Hole, number, pieces


class Overlap(ValueError):
    """Edits that overlap in part, or one that quotes another file: a fault of a rule."""

    def __init__(self, *edits: Edit) -> None:
        super().__init__(f"cannot be made together: {edits}")
        self.edits = edits


@dataclass
class Rendered:
    """A new text, and the pieces `[start, end)` of the old one that it consists of."""

    text: str = ""
    kept: list[tuple[int, int]] = field(default_factory=list)
    made: list[tuple[int, int, Edit]] = field(default_factory=list)
    """Each of the outermost edits, and where its text starts and ends in the new one."""

    def keeps(self, span: tuple[int, int]) -> bool:
        """Whether what stood there still stands somewhere as it was."""
        start, end = span
        return any(first <= start and end <= last for first, last in self.kept)


def apply(path: Path, text: str, edits: Iterable[Edit]) -> Rendered:
    """The text with all edits made. Raises `Overlap`.

    An edit inside a longer one is made where the longer one quotes what it stands in; where that is not quoted, the
    construct is gone, and its edit with it.
    """
    return _Applier(path, text, sorted(edits, key=_order)).whole()


def part(path: Path, text: str, edits: Iterable[Edit], start: int, end: int) -> str:
    """The new text of the characters `[start, end)`, where no longer edit replaces them. Raises `Overlap`."""
    within = [edit for edit in edits if start <= edit.start and edit.end <= end]
    return _Applier(path, text, sorted(within, key=_order)).within(Hole(start, end, False, number(path)))


def _order(edit: Edit) -> tuple[int, bool, int, bool, str]:
    """In the order of the text: insertions first, then the longer; of two at one place the one that quotes it."""
    quotes_itself = any(isinstance(p, Hole) and (p.start, p.end) == (edit.start, edit.end) for p in pieces(edit.text))
    return edit.start, edit.start < edit.end, -edit.end, not quotes_itself, edit.text


class _Applier:
    def __init__(self, path: Path, text: str, edits: Sequence[Edit]) -> None:
        self.path = path
        self.text = text
        self.edits = edits
        self.made: set[Edit] = set()
        """Those that are being rendered: what they quote of themselves is what they were made for."""
        self.taken = {edit.start: text[edit.start : edit.end] for edit in edits if _is_dedent(text, edit)}
        """The white space that is taken off the start of a line."""

    def whole(self) -> Rendered:
        return self._render(Hole(0, len(self.text), True, number(self.path)))

    def within(self, hole: Hole) -> str:
        return self._render(hole).text

    def _render(self, hole: Hole) -> Rendered:
        result, position = Rendered(), hole.start
        for edit in self._outermost(hole):
            self._copy(result, position, edit.start)
            self.made.add(edit)
            start = len(result.text)
            for piece in pieces(self._moved_out(edit)):
                if isinstance(piece, str):
                    result.text += piece
                else:
                    self._fill(result, piece, edit)
            result.made.append((start, len(result.text), edit))
            self.made.discard(edit)
            position = edit.end
            if self._takes_lines(edit):
                position += _blank_lines(result.text, self.text[position : hole.end])
        self._copy(result, position, hole.end)
        return result

    def _fill(self, result: Rendered, hole: Hole, edit: Edit) -> None:
        if hole.file != number(self.path):
            raise Overlap(edit)
        inner = self._render(hole)
        result.text += inner.text if hole.is_lines else self._moved(inner.text, hole, result.text)
        result.kept += inner.kept

    def _moved(self, text: str, hole: Hole, before: str) -> str:
        """What an expression has on further lines stays under the line that it begins on."""
        if "\n" not in text or _OVER_LINES.search(text):
            return text
        line = self._line_at(hole.start)
        was = self._indent_at(line).removeprefix(self.taken.get(line, ""))
        now = self._indent_in(before)
        less = was.removeprefix(now)
        first, *rest = text.splitlines(keepends=True)
        lines = [each for each in rest if each.strip()]
        is_under = all(each.startswith(less) and _UNDER.match(each, len(was)) for each in lines)
        if not was.startswith(now) or not is_under:
            return text
        return first + "".join(each.removeprefix(less) for each in rest)

    def _copy(self, result: Rendered, start: int, end: int) -> None:
        if start < end:
            result.text += self.text[start:end]
            result.kept.append((start, end))

    def _outermost(self, hole: Hole) -> list[Edit]:
        found: list[Edit] = []
        for edit in self.edits:
            if edit in self.made or not _is_inside(edit, hole):
                continue
            if found and edit.start < found[-1].end:
                if edit.end > found[-1].end:
                    raise Overlap(found[-1], edit)
                continue
            found.append(edit)
        return found

    def _moved_out(self, edit: Edit) -> str:
        """Lines that are put above or below one which comes a level out with its block come out with it.

        Those that a rule lays out itself, where it knows of the block, stand further out already.
        """
        line = self._line_at(edit.start)
        if edit.start == edit.end == line and edit.text.endswith("\n"):
            taken = self.taken.get(line) or self._taken_above(edit)
            return "".join(each.removeprefix(taken) for each in edit.text.splitlines(keepends=True))
        own = _LINE_BELOW.fullmatch(edit.text)
        is_last = not self.text[edit.end :].split("\n", 1)[0].strip()
        if own is None or not is_last or own["indent"] != self._indent_at(line):
            return edit.text
        return own["begun"] + (own["indent"] + own["rest"]).removeprefix(self.taken.get(line, ""))

    def _line_at(self, offset: int) -> int:
        return self.text.rfind("\n", 0, offset) + 1

    def _taken_above(self, edit: Edit) -> str:
        """What is taken off the line above, where lines are put below the last one of a block."""
        above = self._line_at(max(edit.start - 1, 0))
        is_same = self._indent_at(above) == edit.text[: len(edit.text) - len(edit.text.lstrip(" \t"))]
        return self.taken.get(above, "") if is_same else ""

    def _indent_at(self, line: int) -> str:
        found = _INDENT.match(self.text, line)
        return found.group() if found is not None else ""

    @staticmethod
    def _indent_in(text: str) -> str:
        """That of the last line so far."""
        line = text[text.rfind("\n") + 1 :]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _takes_lines(self, edit: Edit) -> bool:
        starts = self.text[edit.start - 1 : edit.start] in {"", "\n"}
        return starts and not edit.text and self.text[edit.start : edit.end].endswith("\n")


def _is_dedent(text: str, edit: Edit) -> bool:
    taken = text[edit.start : edit.end]
    return bool(taken) and not edit.text and not taken.strip(" \t") and text[edit.start - 1 : edit.start] in {"", "\n"}


def _is_inside(edit: Edit, hole: Hole) -> bool:
    if not (hole.start <= edit.start and edit.end <= hole.end):
        return False
    if edit.start == edit.end:
        return hole.is_lines or hole.start < edit.start < hole.end
    # What takes the whole of it away takes it from where it stood: it is quoted because it moves.
    return bool(edit.text) or (edit.start, edit.end) != (hole.start, hole.end)


def _blank_lines(before: str, behind: str) -> int:
    """How much of the blank lines behind deleted lines is too much beside those before them."""
    above = _BLANK_BEFORE.search(before)
    below = _BLANK_BEHIND.match(behind)
    assert above is not None
    assert below is not None
    is_docstring = before.rstrip().endswith(('"""', "'''")) and _DOCSTRING.search(before)
    if HEAD.search(before) or is_docstring:  # a block does not start with a gap
        return len(below.group())
    lines = below.group().splitlines(keepends=True)
    return sum(map(len, lines[: len(above.group().splitlines())]))


HEAD = re.compile(r":(?:[ \t]*#[^\n]*)?\r?\n\Z")
"""The end of a line under which a block begins."""
_INDENT = re.compile(r"[ \t]*")
_UNDER = re.compile(r"[ \t)\]}]")
"""How a line goes on that stands further in than the first, or closes it."""
_OVER_LINES = re.compile(r"\"{3}|'{3}|\\\r?\n")
"""A text, or a statement, whose further lines cannot move."""
_LINE_BELOW = re.compile(r"(?P<begun>(?:[ \t]*#[^\n]*)?\r?\n)(?P<indent>[ \t]*)(?P<rest>[^\n]*)")
"""One more line, behind what is said of the statement above it."""
_BLANK_BEFORE = re.compile(r"(?:(?<=\n)[ \t]*\r?\n)*\Z")
_DOCSTRING = re.compile(r":\r?\n[ \t]*[rR]?(\"{3}|'{3})(?:(?!\1)[\s\S])*\1[ \t]*\r?\n\Z")
"""One with a statement right below it."""
_BLANK_BEHIND = re.compile(r"(?:[ \t]*\r?\n)*")
