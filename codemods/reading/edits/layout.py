"""Edits of whole statements that several codemods make: taking one away, putting lines above one."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Collection, Sequence
from itertools import takewhile
from textwrap import dedent

import libcst as cst

from codemods.api import Context, Edit
from codemods.reading.code.enclosing import upward


def removal(ctx: Context, statement: cst.CSTNode) -> Edit:
    """Take a statement away with its lines, and with the comment above that is about nothing else; `pass` where its
    block would be left empty, if that is not of an `if` that only looks at something and goes with it. Of the blank
    lines around it as many go as there were on one side.
    """
    choice = _emptied_choice(ctx, statement)
    if choice is not None:
        return removal(ctx, choice)
    holder = ctx.parent(statement)
    if isinstance(holder, cst.IndentedBlock) and len(holder.body) == 1 and not isinstance(ctx.parent(holder), cst.With):
        return Edit(*ctx.span(statement), "pass")
    start, end = ctx.whole_lines(statement)
    if isinstance(statement, cst.FunctionDef) and statement.decorators:
        start = ctx.whole_lines(statement.decorators[0])[0]
    above, below = ctx.text[:start].split("\n")[:-1], ctx.text[end:].split("\n")
    if "\n" not in ctx.newline or len(below) == 1:
        return Edit(start, end, "")
    if _is_apart(below):
        start -= sum(len(line) + 1 for line in _comments_on(ctx, statement, above))
    return Edit(start, end, "")


def choice_around(ctx: Context, statement: cst.CSTNode) -> cst.If | None:
    """The `if` with nothing but the statement under it, and no other branch."""
    block = ctx.parent(statement)
    choice = ctx.parent(block) if isinstance(block, cst.IndentedBlock) and len(block.body) == 1 else None
    is_whole = isinstance(choice, cst.If) and choice.orelse is None and not isinstance(ctx.parent(choice), cst.If)
    return choice if isinstance(choice, cst.If) and is_whole else None


def _emptied_choice(ctx: Context, statement: cst.CSTNode) -> cst.If | None:
    """The same, where all it does is to look at something: `if args.fsdp:`."""
    choice = choice_around(ctx, statement)
    if choice is None:
        return None
    asks = all(
        isinstance(node, _ONLY_READ) or not isinstance(node, cst.BaseExpression) for node in ctx.inside(choice.test)
    )
    return choice if asks and not comments_in(ctx.code(choice)) else None


_ONLY_READ = (cst.Name, cst.Attribute, cst.BooleanOperation, cst.UnaryOperation, cst.Comparison, cst.SimpleString)


def lost_comments(ctx: Context, statement: cst.CSTNode) -> list[str]:
    """The comments that go with a statement: those in it, and those above it that are about nothing else."""
    start, end = ctx.whole_lines(statement)
    above, below = ctx.text[:start].split("\n")[:-1], ctx.text[end:].split("\n")
    on_top = [line.strip() for line in reversed(_comments_on(ctx, statement, above))] if _is_apart(below) else []
    return [*on_top, *(each for each in comments_in(ctx.text[start:end]) if not _is_switched_off(each))]


def _is_switched_off(comment: str) -> bool:
    """`#default_auto_wrap_policy,` and `#100`: an argument, or another value of one."""
    text = comment.lstrip("#").strip()
    try:
        code = ast.parse(text).body
    except SyntaxError:
        return False
    value = code[0].value if len(code) == 1 and isinstance(code[0], ast.Expr) else None
    if isinstance(value, ast.Constant) and isinstance(value.value, (int, float)):
        return True
    return text.endswith(",") and bool(code) and not text.rstrip(",").isalpha()


def comments_in(code: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(dedent(code)).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def _is_apart(below: Sequence[str]) -> bool:
    """Whether the comments above a statement are about none of those that come behind it."""
    return not below[0].strip() or below[0].lstrip().startswith("#")


def insertion(ctx: Context, node: cst.CSTNode, lines: Sequence[str]) -> Edit:
    """Put lines above the statement that holds `node`, in the block that it stands in, be that one of one line."""
    small = _in_one_line(ctx, node)
    if small is None:
        start, first = statement_start(ctx, node)
        indent = ctx.text[first:start]
        return Edit(first, first, "".join(f"{indent}{line}{ctx.newline}" if line else ctx.newline for line in lines))
    start = ctx.span(small)[0]
    if len(lines) == 1:
        return Edit(start, start, f"{lines[0]}; ")
    line = ctx.text[ctx.text.rfind("\n", 0, start) + 1 : start]
    indent = f"{ctx.newline}{line[: len(line) - len(line.lstrip())]}{ctx.indent}"
    colon = len(ctx.text[:start].rstrip())
    return Edit(colon, start, "".join(f"{indent}{line}" for line in (*lines, "")))


def lines_below(ctx: Context, statement: cst.CSTNode, lines: Sequence[str]) -> Edit:
    """Put lines below a statement that has its lines for itself."""
    start, end = ctx.whole_lines(statement)
    indent = ctx.text[start : ctx.span(statement)[0]]
    first = "" if ctx.text[:end].endswith("\n") else ctx.newline
    return Edit(end, end, first + "".join(f"{indent}{line}{ctx.newline}" for line in lines))


def line_before(ctx: Context, node: cst.CSTNode) -> str:
    """What stands in front of a node on its line."""
    start = ctx.span(node)[0]
    return ctx.text[ctx.text.rfind("\n", 0, start) + 1 : start]


def length_behind(ctx: Context, node: cst.CSTNode) -> int:
    """How much stands behind a node on its last line: 0 where that is too long as the user has it."""
    end = ctx.span(node)[1]
    first = ctx.text.rfind("\n", 0, end) + 1
    line = ctx.text[first : line_end(ctx, end)].rstrip()
    return len(line) - (end - first) if len(line) <= ctx.width else 0


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
    for inner, outer in upward(ctx, node):
        if isinstance(outer, cst.SimpleStatementSuite):
            return inner
        if isinstance(outer, (cst.IndentedBlock, cst.Module)):
            return None
    return None


def _above_comments(text: str, start: int, first: int) -> tuple[int, int]:
    """The start of the comments right above a line that are indented like it; those that begin a file are its own."""
    indent, above = text[first:start], first
    while above and not indent.strip():
        line = text.rfind("\n", 0, above - 1) + 1
        if not text.startswith(f"{indent}#", line):
            return above + len(indent), above
        above = line
    return start, first


def _comments_on(ctx: Context, statement: cst.CSTNode, above: Sequence[str]) -> list[str]:
    """Those that are about a statement: not a line of code that is switched off, and names nothing of it."""
    names = {node.value for node in ctx.inside(statement) if isinstance(node, cst.Name)}
    return list(takewhile(lambda line: _is_about(names, line), comments_on_top(above)))


def _is_about(names: Collection[str], comment: str) -> bool:
    try:
        code = ast.parse(comment.lstrip().lstrip("#").strip())
    except SyntaxError:
        return True
    if not all(isinstance(line, _STEPS) or isinstance(getattr(line, "value", None), ast.Call) for line in code.body):
        return True  # a word or two
    said = {getattr(node, "id", None) or getattr(node, "attr", None) for node in ast.walk(code)}
    return not code.body or not said.isdisjoint(names)


_STEPS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete, ast.Import, ast.ImportFrom)


def comments_on_top(above: Sequence[str]) -> list[str]:
    """The lines of comments that end these lines; those that begin a file are its own."""
    comments = list(takewhile(lambda line: line.lstrip().startswith("#"), reversed(above)))
    return comments if len(comments) < len(above) else []


def line_end(ctx: Context, offset: int) -> int:
    """The offset of the newline that ends a line, or of the end of the file."""
    end = ctx.text.find("\n", offset)
    return end if end >= 0 else len(ctx.text)
