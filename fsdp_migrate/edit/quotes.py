"""What is written goes into a file of single quotes in single quotes."""

from __future__ import annotations

import tokenize
from collections import Counter
from collections.abc import Iterator

import libcst as cst

from codemods.api import Edit
from codemods.template import pieces

from ..pyanalysis.quiet_ast import tokens
from ..pyanalysis.tree import Tree

_EVIDENCE = 6
"""Fewer literals show no habit."""


def in_quotes_of(tree: Tree, edit: Edit) -> Edit:
    """The edit as the file would have it. Inside of an f-string, whose quotes its literals cannot be in, it stays."""
    if '"' not in edit.text or not are_single(tree) or _is_in_f_string(tree, edit) or _is_double_here(tree, edit):
        return edit
    return Edit(edit.start, edit.end, in_single_quotes(edit.text))


def are_single(tree: Tree) -> bool:
    """Whether single quotes are the habit of a file."""
    found = Counter(literal.quote for literal in tree.nodes(cst.SimpleString))
    return found["'"] >= _EVIDENCE and found["'"] > 3 * found['"']


def in_single_quotes(template: str) -> str:
    """A piece of code, whole or not, with its plain literals in single quotes; holes stay."""
    parts = list(pieces(template))
    code = "".join(part if isinstance(part, str) else _HOLE for part in parts)
    lines = code.splitlines(keepends=True)
    for row, start, end in _plain_literals(code):
        line = lines[row]
        lines[row] = f"{line[:start]}'{line[start + 1 : end - 1]}'{line[end:]}"
    texts = "".join(lines).split(_HOLE)
    holes = [part.text for part in parts if not isinstance(part, str)]
    return "".join(text + hole for text, hole in zip(texts, [*holes, ""], strict=True))


_HOLE = "__hole_in_a_template__"


def _plain_literals(code: str) -> Iterator[tuple[int, int, int]]:
    """The row, counted from 0, and `[start, end)` in it, of each literal that means the same in other quotes."""
    lines, opened = code.split("\n"), list[tuple[int, int]]()
    for token in tokens(f"(\n{code}"):  # in brackets, which are never closed, no indentation counts
        name, (row, start), (_, end) = tokenize.tok_name[token.type], token.start, token.end
        if name == "FSTRING_START":
            opened.append((row, start))
        elif name == "FSTRING_END":
            row, start = opened.pop()
        if name not in {"STRING", "FSTRING_END"} or opened or row != token.end[0]:
            continue
        text = lines[row - 2][start:end]
        start += text.startswith("f")
        quoted = text.removeprefix("f")
        is_one = quoted[:1] == quoted[-1:] == '"' and not {"'", "\\", '"'} & set(quoted[1:-1])
        if is_one and _HOLE not in text:
            yield row - 2, start, end


def _is_double_here(tree: Tree, edit: Edit) -> bool:
    """Whether the user has double quotes in all that is replaced, some of which the new text may say again."""
    spans = ((tree.span(literal), literal.quote) for literal in tree.nodes(cst.SimpleString))
    quotes = {quote for (start, end), quote in spans if edit.start <= start and end <= edit.end}
    return quotes == {'"'}


def _is_in_f_string(tree: Tree, edit: Edit) -> bool:
    spans = (tree.span(node) for node in tree.nodes(cst.FormattedString))
    return any(start <= edit.start and edit.end <= end for start, end in spans)
