"""How a call is written, and edits of its arguments that keep the layout."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import libcst as cst

from codemods.api import Context, Edit
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import upward
from codemods.reading.code.shapes import alone
from codemods.reading.code.words import words
from codemods.reading.edits.layout import line_before
from codemods.reading.state_dicts.setting_helpers import is_context

from ..wrappers.inner_choice import is_given_up
from .block_layout import extra_indent
from .layout import comments_on_top, insertion, line_end, statement_start


def text_literal(ctx: Context, node: cst.CSTNode, text: str) -> str:
    """A string to be written in the place of a node: in the other quotes than those of an f-string around it."""
    around = [outer for outer in ctx.ancestors(node) if isinstance(outer, cst.FormattedString)]
    quote = "'" if any('"' in outer.start for outer in around) else '"'
    return f"{quote}{text}{quote}"


def either(ctx: PlannedContext, call: cst.Call, test: str, one: str, other: str) -> str:
    """`one if test else other` in the place of a call; an `if` where the call is all of a statement."""
    holder = ctx.parent(call)
    if isinstance(holder, cst.Expr) and alone(ctx.parent(holder)) is not None:
        margin = line_below(ctx, call, "")
        return f"if {test}:{margin}{ctx.indent}{one}{margin}else:{margin}{ctx.indent}{other}"
    text = f"{one} if {test} else {other}"
    return text if isinstance(holder, _WHOLE) else f"({text})"


_WHOLE = (cst.Arg, cst.Assign, cst.DictElement, cst.Expr, cst.Return)
"""What an expression needs no brackets in."""


def space_behind(ctx: PlannedContext, call: cst.Call, argument: cst.Arg) -> str:
    """What stands between an argument and one put behind it: a line break where this one has a line of its own."""
    line = line_before(ctx, argument)
    if line.strip() or not _is_hanging(ctx, call):
        return " "
    gone = gone_around(argument, ctx)
    return ctx.newline + line[: len(line) - gone]


def line_above(ctx: PlannedContext, node: cst.CSTNode, *lines: str) -> Edit:
    """Lines above the statement of a node, where that comes to stand once the block around it is taken away."""
    gone = gone_around(node, ctx)
    if not gone:
        return insertion(ctx, node, lines)
    start, first = statement_start(ctx, node)
    indent = ctx.newline + ctx.text[first : start - gone]
    following = [*lines[1:], "the statement"]
    above = (f"{one}{indent if other else ctx.newline}" for one, other in zip(lines, following, strict=True))
    return Edit(start, start, "".join(above))


def line_below(ctx: PlannedContext, node: cst.CSTNode, line: str) -> str:
    """What comes behind a statement's new text to put a line below it, under the same indentation."""
    gone = gone_around(node, ctx)
    start, first = statement_start(ctx, node)
    return f"{ctx.newline}{ctx.text[first : start - gone]}{line}"


def quoted_argument(ctx: Context, argument: cst.Arg) -> str:
    """An argument with its keyword or star, without the comma behind it."""
    return ctx.quote_text(ctx.span(argument)[0], ctx.span(argument.value)[1])


def gone_around(node: cst.CSTNode, ctx: PlannedContext) -> int:
    """How many characters a node comes further out, once the blocks around it are taken away."""
    return sum(extra_indent(ctx, block) for block in _contexts_around(node, ctx))


def _contexts_around(node: cst.CSTNode, ctx: PlannedContext) -> list[cst.With | cst.If]:
    """The `with FSDP.state_dict_type(…):` around a node that are taken away, and an `if hasattr(model, "module"):`."""
    around = [outer for inner, outer in upward(ctx, node) if isinstance(outer, cst.With) and inner is outer.body]
    blocks = [block for block in around if len(block.items) == 1]
    calls = [(block, call) for block in blocks if isinstance(call := block.items[0].item, cst.Call)]
    gone = [block for block, call in calls if is_context(call, ctx) and not ctx.plan.keeps_setting(call)]
    return [*gone, *(outer for outer in ctx.ancestors(node) if isinstance(outer, cst.If) and is_given_up(outer, ctx))]


def append_argument(
    ctx: Context, call: cst.Call, text: str, block: cst.With | None = None, last: cst.Arg | None = None
) -> Edit:
    """Put one more argument behind the last, or the last that stays: on a line of its own where that one stands on one.

    Not where that one is aligned with the bracket, which another name of the function moves. Of a call in a block that
    `replace_head` takes one level out, the lines put in have to be written there.
    """
    end = ctx.bare_span(call)[1] - 1
    if not call.args:
        return Edit(end, end, f", {text}")
    last = last or call.args[-1]
    behind = ctx.span(last.value)[1]
    gap = own_line(ctx, last, block) if _is_hanging(ctx, call) else ""
    if not isinstance(last.comma, cst.Comma):
        magic = "," if gap and "\n" in ctx.text[behind:end] else ""
        return Edit(behind, behind, f",{gap or ' '}{text}{magic}")
    comma = ctx.text.index(",", behind) + 1
    if "\n" not in ctx.text[comma:end]:
        return Edit(comma, comma, f"{gap or ' '}{text}")
    line = ctx.text[: ctx.span(last)[0]].rpartition("\n")[2]
    gap = gap or ctx.newline + line[: len(line) - len(line.lstrip()) - (extra_indent(ctx, block) if block else 0)]
    rest = ctx.text[comma : line_end(ctx, comma)].rstrip()
    behind = comma + len(rest) if rest.lstrip().startswith("#") else comma  # a comment stays with its argument
    return Edit(behind, behind, f"{gap}{text},")


def call_with(ctx: Context, call: cst.Call, function: str, more: str) -> Edit:
    """A call by another name with one more argument, laid out as it was."""
    start, end = ctx.span(call)
    if "\n" not in ctx.code(call):
        arguments = [*(quoted_argument(ctx, each) for each in call.args), more]
        return Edit(start, end, f"{function}({', '.join(arguments)})")
    added = append_argument(ctx, call, more)
    inner = f"{ctx.quote_text(ctx.span(call.func)[1], added.start)}{added.text}"
    return Edit(start, end, f"{function}{inner}{ctx.quote_text(added.end, end)}")


def comment_on(ctx: Context, argument: cst.Arg | None) -> str:
    """What is said behind an argument that has its lines for itself."""
    if argument is None or not _is_on_own_lines(ctx, argument):
        return ""
    end = _with_comma(ctx, argument)[1]
    return ctx.text[end : line_end(ctx, end)].strip()


def call_of(ctx: PlannedContext, node: cst.CSTNode, function: str, arguments: Sequence[tuple[str, str]]) -> str:
    """A call in the place of `node`, of arguments and what is said of each: a line for each where anything is."""
    if not any(comment for _, comment in arguments):
        return f"{function}({', '.join(text for text, _ in arguments)})"
    start, first = statement_start(ctx, node)
    outer = f"{ctx.newline}{ctx.text[first : start - gone_around(node, ctx)]}"
    lines = (f"{outer}{ctx.indent}{text},{comment and f'  {comment}'}" for text, comment in arguments)
    return f"{function}({''.join(lines)}{outer})"


def is_broken_for_width(ctx: Context, call: cst.Call) -> bool:
    """Whether a call of several lines has all arguments on one of them: no comma at the end, and no comment, asks for
    more than one.
    """
    start, end = ctx.bare_span(call)
    if not call.args:
        return False
    is_open = "\n" in ctx.text[start:end] and not isinstance(call.args[-1].comma, cst.Comma)
    alone = not ctx.text[end : line_end(ctx, end)].strip()
    within = ctx.text[ctx.span(call.args[0])[0] : ctx.span(call.args[-1])[1]]
    return is_open and alone and "\n" not in within and "#" not in ctx.text[start:end]


def _is_hanging(ctx: Context, call: cst.Call) -> bool:
    """Whether the arguments begin on the line below the bracket."""
    return "\n" in ctx.text[ctx.bare_span(call.func)[1] : ctx.span(call.args[0])[0]]


def own_line(ctx: Context, argument: cst.Arg, block: cst.With | None = None) -> str:
    """The line break and the indentation in front of an argument that begins a line; empty where none does.

    As they are once `block` is taken away.
    """
    line = line_before(ctx, argument)
    gone = extra_indent(ctx, block) if block is not None else 0
    return "" if line.strip() else ctx.newline + line[: len(line) - gone]


def argument_removal(ctx: Context, call: cst.Call, argument: cst.Arg, gone: Collection[cst.Arg] = ()) -> list[Edit]:
    """Take one argument out of a call, with its line where it stands alone on one, and the comment on it alone, or on
    it and those of `gone` below it.
    """
    (start, end), index = _with_comma(ctx, argument), call.args.index(argument)
    is_tail = all(other in gone for other in call.args[index + 1 :])
    if _is_on_own_lines(ctx, argument) and (not is_tail or _is_on_own_lines(ctx, call.args[-1])):
        line_start, behind = ctx.text.rfind("\n", 0, start) + 1, line_end(ctx, end)
        last = behind
        for other in call.args[index + 1 :]:
            if other not in gone or ctx.text[last : ctx.span(other)[0]].strip():
                break
            last = line_end(ctx, ctx.span(other)[1])
        below = ctx.text[last + 1 :].lstrip(" \t")
        comments = comments_on_top(ctx.text[:line_start].split("\n")[:-1])
        if below.startswith(("#", ")", "\r", "\n")) or _names(comments, argument, call.args[index + 1 :]):
            line_start -= sum(len(line) + 1 for line in comments)
        return [Edit(line_start, behind + 1, "")]
    if is_tail:  # with the comma before it
        start = ctx.span(call.args[index - 1].value)[1] if index else start
        return [Edit(start, end if argument is call.args[-1] else ctx.span(argument.value)[1], "")]
    return [Edit(start, ctx.span(call.args[index + 1])[0], "")]


def _names(comments: Sequence[str], argument: cst.Arg, below: Sequence[cst.Arg]) -> bool:
    """Whether comments say a word of the argument's name, and of none below it: `# Buffer precision.`"""
    said = frozenset(" ".join(comments).lower().replace(".", " ").split())
    own, *others = (words(each.keyword.value) if each.keyword else frozenset[str]() for each in (argument, *below))
    return bool(said & own) and not any(said & other for other in others)


def _with_comma(ctx: Context, argument: cst.Arg) -> tuple[int, int]:
    start, end = ctx.span(argument)
    if isinstance(argument.comma, cst.Comma):
        end = max(end, ctx.text.index(",", ctx.span(argument.value)[1]) + 1)
    return start, end


def _is_on_own_lines(ctx: Context, argument: cst.Arg) -> bool:
    """Whether nothing else stands on the lines of an argument, but for a comment."""
    end = _with_comma(ctx, argument)[1]
    rest = ctx.text[end : line_end(ctx, end)].strip()
    return not line_before(ctx, argument).strip() and (not rest or rest.startswith("#"))


def renaming(ctx: Context, call: cst.Call, name: str, left_out: Collection[cst.Arg] = ()) -> list[Edit]:
    """Call another function, with arguments that stand below one another moved along."""
    edits = [Edit(*ctx.bare_span(call.func), name)]
    wider = len(name) - len(ctx.code(call.func))
    if not wider or not call.args or "\n" in ctx.text[ctx.span(call)[0] : ctx.span(call.args[0])[0]]:
        return edits
    first = _column(ctx, call.args[0])
    for before, argument in pairwise(call.args):
        takes_its_place = before in left_out and not _is_on_own_lines(ctx, before)
        if argument in left_out or takes_its_place or _column(ctx, argument) != first:
            continue
        start = ctx.span(argument)[0]
        if not ctx.text[start - first : start].strip(" "):
            edits.append(Edit(start + min(wider, 0), start, " " * wider))
    return edits


def _column(ctx: Context, argument: cst.Arg) -> int:
    return len(line_before(ctx, argument))
