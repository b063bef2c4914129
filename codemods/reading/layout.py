"""Edits of whole statements that several codemods make: taking one away, stopping before one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import libcst as cst

from codemods.api import Context, Edit


def removal(ctx: Context, statement: cst.CSTNode) -> Edit:
    """Take a statement away with its lines, and with the comment above that is about nothing else; `pass` where its
    block would be left empty. Of the blank lines around it as many go as there were on one side.
    """
    holder = ctx.parent(statement)
    if isinstance(holder, cst.IndentedBlock) and len(holder.body) == 1 and not isinstance(ctx.parent(holder), cst.With):
        return Edit(*ctx.span(statement), "pass")
    start, end = ctx.whole_lines(statement)
    above, below = ctx.text[:start].split("\n")[:-1], ctx.text[end:].split("\n")
    if "\n" not in ctx.newline or len(below) == 1:
        return Edit(start, end, "")
    if not below[0].strip() or below[0].lstrip().startswith("#"):
        start -= sum(len(line) + 1 for line in comments_on_top(above))
    return Edit(start, end, "")


def insert_raise(ctx: Context, node: cst.CSTNode, code: str, why: str) -> list[Edit]:
    """Raise before the statement that holds `node`: what FSDP2 would silently ignore must not be reached."""
    if is_stopped(ctx, node, code):
        return []
    text = why.replace('"', "'")
    return [insertion(ctx, node, f'{_marker(code)}{text}")')]


def insertion(ctx: Context, node: cst.CSTNode, line: str) -> Edit:
    """Put a line above the statement that holds `node`, in the block that it stands in, be that one of one line."""
    small = _in_one_line(ctx, node)
    if small is not None:
        start = ctx.span(small)[0]
        return Edit(start, start, f"{line}; ")
    start, first = statement_start(ctx, node)
    return Edit(start, start, f"{line}{ctx.newline}{ctx.text[first:start]}")


def is_stopped(ctx: Context, node: cst.CSTNode, code: str) -> bool:
    """Whether an earlier run has put a `raise` before the statement that holds `node`."""
    small = _in_one_line(ctx, node)
    if small is not None:
        start = ctx.span(small)[0]
        return _marker(code) in ctx.text[ctx.text.rfind("\n", 0, start) + 1 : start]
    first = statement_start(ctx, node)[1]
    return ctx.text[:first].rstrip().rsplit("\n", 1)[-1].lstrip().startswith(_marker(code))


def statement_start(ctx: Context, node: cst.CSTNode) -> tuple[int, int]:
    """Where the statement that holds a node starts, with its decorators and the comments on it, and its line."""
    statement = node
    for ancestor in ctx.ancestors(node):
        if isinstance(ancestor, (cst.IndentedBlock, cst.Module)):
            break
        statement = ancestor
    start = ctx.span(statement)[0]
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)) and statement.decorators:
        start = ctx.span(statement.decorators[0])[0]
    return _above_comments(ctx.text, start, ctx.text.rfind("\n", 0, start) + 1)


def _in_one_line(ctx: Context, node: cst.CSTNode) -> cst.CSTNode | None:
    """The small statement that holds a node, in `for batch in batches: step(batch); model.zero_grad()`."""
    inner = node
    for outer in ctx.ancestors(node):
        if isinstance(outer, cst.SimpleStatementSuite):
            return inner
        if isinstance(outer, (cst.IndentedBlock, cst.Module)):
            return None
        inner = outer
    return None


def _marker(code: str) -> str:
    return f'raise NotImplementedError("fsdp-migrate {code}: '


def _above_comments(text: str, start: int, first: int) -> tuple[int, int]:
    """The start of the comments right above a line that are indented like it; those that begin a file are its own."""
    indent, above = text[first:start], first
    while above and not indent.strip():
        line = text.rfind("\n", 0, above - 1) + 1
        if not text.startswith(f"{indent}#", line):
            return above + len(indent), above
        above = line
    return start, first


def comments_on_top(above: Sequence[str]) -> list[str]:
    """The lines of comments that end these lines; those that begin a file are its own."""
    comments = list(takewhile(lambda line: line.lstrip().startswith("#"), reversed(above)))
    return comments if len(comments) < len(above) else []


def line_end(ctx: Context, offset: int) -> int:
    """The offset of the newline that ends a line, or of the end of the file."""
    end = ctx.text.find("\n", offset)
    return end if end >= 0 else len(ctx.text)
