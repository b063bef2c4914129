"""`(FSDP if sharded else DDP)(model, …)`: an `if`, with the `fully_shard` calls in one branch and DDP's in the other.

The other class gets what it got, but for what it does not look at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import NotStatic
from codemods.reading.code.only_asks import only_asks
from codemods.reading.wraps.chosen_class import ChosenClass, is_fsdps, is_ignored

from .draft import Draft

_NEED_NO_BRACKETS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)


def leave_to_others(chosen: ChosenClass, draft: Draft) -> None:
    """What another class is given stays as it is. Raises NotStatic where more than its making would be gone."""
    ctx = draft.file
    others = [branch.called for branch in chosen.branches if not is_fsdps(ctx, branch)]
    given = {each.value for called in others for each in _given(called, draft)} - {draft.module}
    made = [origin for value in given for origin in (*ctx.origins(value), *ctx.items(value))]
    needed = {origin.node for origin in made if origin.node is not None and not origin.is_none}
    gone = {node for statement in draft.dead for node in ctx.inside(statement)}
    if needed & gone or not all(only_asks(ctx, statement) for statement in draft.dead):
        raise NotStatic("the constructor is one of several classes, and another needs what would be gone")
    draft.keeps |= needed
    draft.inlined -= needed
    if chosen.statement is not None:
        draft.dead.append(chosen.statement)


def in_branches(head: str, tail: str, lines: Sequence[str], draft: Draft) -> list[str]:
    """`lines` where the class is FSDP1's, and the call of each other class, with what stands around it."""
    assert draft.chosen is not None
    ctx, written = draft.file, list[str]()
    for branch in draft.chosen.branches:
        word = "elif" if written else "if"
        written.append("else:" if branch.test is None else f"{word} {ctx.quote(branch.test)}:")
        body = lines if is_fsdps(ctx, branch) else _call(head, branch.called, tail, draft)
        written += [f"    {line}" for line in body]
    return written


def _call(head: str, called: cst.BaseExpression, tail: str, draft: Draft) -> list[str]:
    ctx = draft.file
    function = ctx.quote(called)
    if not isinstance(called, _NEED_NO_BRACKETS) and not called.lpar:
        function = f"({function})"
    arguments = [ctx.quote_text(ctx.span(each)[0], ctx.span(each.value)[1]) for each in _given(called, draft)]
    line = f"{head}{function}({', '.join(arguments)}){tail}"
    if draft.fits(line):
        return [line]
    return [f"{head}{function}(", *(f"    {argument}," for argument in arguments), f"){tail}"]


def _given(called: cst.BaseExpression, draft: Draft) -> Iterator[cst.Arg]:
    """The arguments that a class is called with: those that it looks at, or that are more than a value."""
    for argument in draft.call.args:
        is_needless = only_asks(draft.file, argument.value)
        if not (is_needless and is_ignored(draft.file, called, draft.call, argument)):
            yield argument
