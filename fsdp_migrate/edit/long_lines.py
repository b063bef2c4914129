"""What is written stands in lines as the file has them: no longer than its own, and in one where one is enough."""

from __future__ import annotations

import ast
import tokenize
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from codemods.api import Edit

from .. import support
from ..pyanalysis.quiet_ast import tokens
from ..pyanalysis.tree import Tree
from .apply import Rendered


def fitted(before: Tree, rendered: Rendered) -> str:
    """The new text, with the lines broken that the edits made too long, and those joined that they made short."""
    lines = rendered.text.split("\n")
    edited = _edited(before, rendered, lines)
    rows = set(_too_long(before, lines, edited))
    for start, end in reversed(list(_statements(rendered.text))):
        if edited.keys().isdisjoint(range(start, end)):
            continue
        line = _in_one(lines[start:end])
        if line is None or len(line) > before.width:
            continue
        old = _replaced(before, rendered, lines, start, end)
        is_joined = end - start > 1
        bare = _without_brackets(line, is_joined, old)
        if is_joined and not (_was_long(old, before.width) and (bare != line or _hangs(lines[start:end]))):
            continue  # the user has it on several lines by choice
        lines[start:end] = [bare]
        rows = {row - (end - start - 1) * (row >= end) for row in rows}
    return support.broken("\n".join(lines), before.width, before.indent, sorted(rows))


def _statements(text: str) -> Iterator[tuple[int, int]]:
    """The rows `[start, end)` of each statement or head of one, where no text goes over several lines."""
    first, is_plain = None, True
    for token in tokens(text):
        if token.type in _LAYOUT:
            continue
        first = token.start[0] - 1 if first is None else first
        is_plain = is_plain and token.start[0] == token.end[0]
        if token.type == tokenize.NEWLINE:
            if is_plain:
                yield first, token.end[0]
            first, is_plain = None, True


_MORE = 20
"""By how many characters a line may grow that was too long before by more: the user has it on one by choice."""

_LAYOUT = frozenset({tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER})


def _in_one(lines: Sequence[str]) -> str | None:
    """A statement on one line; None where a comment, or a comma behind the last element, asks for several."""
    if len(lines) == 1:
        return lines[0]
    newline = "\r" if lines[0].endswith("\r") else ""
    if any(each.rstrip("\r").endswith("\\") for each in lines):
        return None
    closing, mark, comment = lines[-1].rstrip("\r").partition("  #")
    line = support.one_line([*lines[:-1], closing])
    return None if line is None else f"{line}{mark}{comment}{newline}"


def _replaced(before: Tree, rendered: Rendered, lines: Sequence[str], start: int, end: int) -> str:
    """What stood in the place of some rows."""
    first = sum(len(line) + 1 for line in lines[:start])
    last = first + sum(len(line) + 1 for line in lines[start:end]) - 1
    after = [(at, edit) for at, behind, edit in rendered.made if behind > first or at >= first]
    ahead = [(behind, edit) for at, behind, edit in rendered.made if at <= last]
    at, edit = after[0]
    old_start = edit.start - max(at - first, 0)
    behind, edit = ahead[-1]
    old_end = edit.end + max(last - behind, 0)
    return before.text[before.line_start(old_start) : old_end].rstrip()


def _was_long(text: str, width: int) -> bool:
    """Whether some lines had no room on one, or were one."""
    first, *others = text.split("\n")
    return not others or len(first) + sum(len(line.strip()) + 1 for line in others) > width


def _hangs(lines: Sequence[str]) -> bool:
    """Whether the brackets of a statement end its first line, and begin its last."""
    return lines[0].rstrip().endswith(("(", "[", "{")) and lines[-1].lstrip().startswith((")", "]", "}"))


def _without_brackets(line: str, is_joined: bool, old: str) -> str:
    """`policy = (first if one else second)` without the brackets, which were for several lines, or for an argument."""
    code = line.strip()
    for sign in (" = (", "return ("):
        head, found, value = code.partition(sign)
        bare = f"{head}{sign[:-1]}{value[:-1]}"
        is_old = not is_joined and f"{head}{sign}" in old and not value[:-1].replace(".", "").isidentifier()
        if found and value.endswith(")") and head.count("(") == head.count(")") and not is_old:
            return line.replace(code, bare) if _says_the_same(code, bare) else line
    return line


def _says_the_same(code: str, bare: str) -> bool:
    """Whether brackets say nothing, nor make a tuple easier to see."""
    try:
        trees = [ast.parse(each) for each in (code, bare)]
    except SyntaxError:
        return False
    is_tuple = any(isinstance(getattr(node, "value", None), ast.Tuple) for node in trees[0].body)
    return not is_tuple and ast.dump(trees[0]) == ast.dump(trees[1])


def _edited(before: Tree, rendered: Rendered, lines: Sequence[str]) -> Mapping[int, Sequence[Edit]]:
    """The rows, counted from 0, that edits have a part of."""
    starts = [0, *accumulate(len(line) + 1 for line in lines[:-1])]
    found = defaultdict(list)
    for start, end, edit in rendered.made:
        if _takes_lines_away(before, edit):
            continue  # what comes behind them is not touched
        for row in range(bisect_right(starts, start) - 1, bisect_right(starts, max(start, end - 1))):
            found[row].append(edit)
    return found


def _takes_lines_away(before: Tree, edit: Edit) -> bool:
    is_whole = before.line_start(edit.start) == edit.start and before.text[edit.start : edit.end].endswith("\n")
    return is_whole and not edit.text


def _too_long(before: Tree, lines: Sequence[str], edited: Mapping[int, Sequence[Edit]]) -> Iterator[int]:
    """Lines that the user made so long stay, be it around what was edited, and so do those with the user's comments."""
    theirs = {line.strip() for line in before.text.split("\n")}
    for row, edits in edited.items():
        line = lines[row].rstrip()
        if len(line) <= before.width or line.strip() in theirs:
            continue
        comment = line[line.find("#") :] if "#" in line else ""
        old = _length(before, edits)
        room = old + _MORE if old > before.width + _MORE else old
        if not (comment and comment in before.text) and len(line) > room:
            yield row


def _length(before: Tree, edits: Sequence[Edit]) -> int:
    """How long the line was that the edits are of; 0 where they make several of one, or one of several."""
    if any("\n" in edit.text or "\n" in before.text[edit.start : edit.end] for edit in edits):
        return 0
    start = before.line_start(edits[0].start)
    return len(before.text[start:].split("\n", 1)[0].rstrip())
