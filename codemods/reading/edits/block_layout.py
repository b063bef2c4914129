"""Edits that take the body of a block one level out."""

from __future__ import annotations

import io
import tokenize

import libcst as cst

from codemods.api import Context, Edit

from .layout import insertion, line_end


def replace_head(ctx: Context, block: cst.With | cst.If, line: str = "") -> list[Edit]:
    """Edits that put one line, or nothing, in the place of `with ...:` and take the body one level out.

    Lines inside a multi-line string keep their text: their white space is the string's.
    """
    start = ctx.whole_lines(block)[0]
    indent = ctx.text[start : ctx.span(block)[0]]
    colon = _behind_colon(ctx, block)
    first = line_end(ctx, colon) + 1
    comment = ctx.text[colon : first - 1].strip()
    line = f"{comment}{ctx.newline}{indent}{line}" if comment and line else line or comment
    while not ctx.text[first : line_end(ctx, first)].strip():
        first = line_end(ctx, first) + 1
    gap = ctx.newline if not line and _needs_gap(ctx, block, start, first) else ""
    head = Edit(start, first, f"{indent}{line}{ctx.newline}" if line else gap)
    return [head, *dedent(ctx, block, first)]


def leave_context(ctx: Context, block: cst.With, item: cst.WithItem, line: str = "") -> list[Edit]:
    """One context less in a `with`, and one line, or nothing, above what it ran: above its body if it was the only."""
    items = list(block.items)
    if len(items) == 1:
        return replace_head(ctx, block, line)
    index = items.index(item)
    start, end = ctx.span(item)
    span = (ctx.span(items[index - 1])[1], end) if index else (start, ctx.span(items[1])[0])
    return [Edit(*span, ""), *([insertion(ctx, block, [line])] if line else [])]


def _needs_gap(ctx: Context, block: cst.With | cst.If, start: int, first: int) -> bool:
    """Whether a function, or a class, comes to stand right below another statement."""
    one = block.body.body[0]
    above, below = ctx.text[:start], ctx.text[first : ctx.span(one)[0]]
    begins = above.rstrip().endswith(":") or above.endswith(2 * ctx.newline) or 2 * ctx.newline in below
    return isinstance(one, (cst.FunctionDef, cst.ClassDef)) and not begins


def dedent(ctx: Context, block: cst.With | cst.If, offset: int) -> list[Edit]:
    """Take the body one level out, from a line of it on."""
    extra = extra_indent(ctx, block)
    end = _behind_comments(ctx, block, extra)
    strings = _multi_line_strings(ctx, block.body)
    edits = []
    while 0 < offset < end:
        following = ctx.text.find("\n", offset) + 1
        line = ctx.text[offset : following or len(ctx.text)]
        inside_string = any(left < offset <= right for left, right in strings)
        if not inside_string and line.strip() and not line[:extra].strip():
            edits.append(Edit(offset, offset + extra, ""))
        offset = following
    return edits


def extra_indent(ctx: Context, block: cst.With | cst.If) -> int:
    """How many characters the body is further in than the `with`."""
    statement = block.body.body[0]
    inner = ctx.span(statement)[0] - ctx.whole_lines(statement)[0]
    return inner - (ctx.span(block)[0] - ctx.whole_lines(block)[0])


def _behind_colon(ctx: Context, block: cst.With | cst.If) -> int:
    """The offset behind the colon of the head; brackets and lambdas in it have colons of their own."""
    start = ctx.span(block)[0]
    lines = io.StringIO(ctx.text[start:], newline="").readline
    depth = lambdas = offset = 0
    starts = _line_starts(ctx.text[start:])
    for token in tokenize.generate_tokens(lines):
        if token.string in {"(", "[", "{"}:
            depth += 1
        elif token.string in {")", "]", "}"}:
            depth -= 1
        elif token.string == "lambda" and not depth:
            lambdas += 1
        elif token.string == ":" and token.type == tokenize.OP and not depth:
            if not lambdas:
                offset = starts[token.end[0] - 1] + token.end[1]
                break
            lambdas -= 1
    return start + offset


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _behind_comments(ctx: Context, block: cst.With | cst.If, extra: int) -> int:
    """The end of the body, with comments that follow its last statement at its own indentation."""
    end = ctx.span(block.body.body[-1])[1]
    inner = extra + ctx.span(block)[0] - ctx.whole_lines(block)[0]
    offset = ctx.text.find("\n", end) + 1
    while offset:
        line_end = ctx.text.find("\n", offset)
        line = ctx.text[offset : line_end if line_end >= 0 else len(ctx.text)]
        if line.strip() and not (line.lstrip().startswith("#") and len(line) - len(line.lstrip()) >= inner):
            break
        if line.strip():
            end = offset + len(line)
        offset = line_end + 1
    return end


def _multi_line_strings(ctx: Context, node: cst.CSTNode) -> list[tuple[int, int]]:
    if isinstance(node, (cst.SimpleString, cst.FormattedString)):
        start, end = ctx.span(node)
        return [(start, end)] if "\n" in ctx.text[start:end] else []
    return [span for child in node.children for span in _multi_line_strings(ctx, child)]


def indented(ctx: Context, node: cst.CSTNode) -> list[Edit]:
    """Edits that take the further lines of a statement one level in, where no string holds them."""
    start, end = ctx.span(node)
    strings = _multi_line_strings(ctx, node)
    edits, offset = [], ctx.text.find("\n", start, end) + 1
    while offset:
        if not any(left < offset <= right for left, right in strings):
            edits.append(Edit(offset, offset, ctx.indent))
        offset = ctx.text.find("\n", offset, end) + 1
    return edits
