"""What is written for several models of one function alike goes into a local function: `shard(teacher)`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace

import libcst as cst

from codemods.reading.enclosing import enclosing

from .draft import Draft, UnitSelector
from .emit import kept_comments

_LINES = 8
"""Fewer are read faster twice than behind a name."""


def put_in_function(drafts: Sequence[Draft], is_below: Callable[[Draft, Draft], bool]) -> None:
    """Let the first call, and those below it that say the same of other models, call one function.

    `drafts` are those of one scope in the order of the text, without what an earlier one has computed.
    """
    if not drafts or not is_in_place(drafts[0]):
        return
    first = drafts[0]
    own = [text for text in first.before if first.model in text]
    shared = [text for text in first.before if first.model not in text]
    named = {node.value for node in first.file.inside(first.file.scope(first.call)) if isinstance(node, cst.Name)}
    model = next((name for name in ("model", "net", "root") if name not in named), "")
    body = _body(first, own, model)
    alike = [other for other in drafts[1:] if model and is_in_place(other) and is_below(first, other)]
    alike = [other for other in alike if _says(_body(other, other.before, model)) == _says(body)]
    lines = sum(len(text.split("\n")) for text in own) + 4 * (first.selector is not None)
    if not alike or lines < _LINES or _binds(own, first) & _reads(shared, first):
        return
    name = first.fresh("shard", "shard_module")
    for draft in (first, *alike):
        draft.helper = name
    first.before, first.helper_body = shared, body


def _body(draft: Draft, own: Sequence[str], model: str) -> Draft:
    """The draft for the function's parameter."""

    def put(text: str) -> str:
        return text.replace(draft.model, model)

    chosen = draft.selector
    if chosen is not None:
        chosen = UnitSelector(
            put(chosen.test),
            chosen.nested,
            chosen.may_be_root,
            chosen.may_be_container,
            put(chosen.units),
            chosen.item,
            put(chosen.guard),
        )
    return replace(
        draft,
        model=model,
        before=[put(text) for text in own],
        after=[put(text) for text in draft.after],
        unit_steps=[put(text) for text in draft.unit_steps],
        common_kwargs={key: put(text) for key, text in draft.common_kwargs.items()},
        unit_kwargs={key: put(text) for key, text in draft.unit_kwargs.items()},
        root_kwargs={key: put(text) for key, text in draft.root_kwargs.items()},
        selector=chosen,
    )


def _says(body: Draft) -> tuple[object, ...]:
    """All that is written of it, with the source in the holes."""
    plain = body.file.plain
    kwargs = (body.common_kwargs, body.unit_kwargs, body.root_kwargs)
    chosen = body.selector
    texts = [*body.before, "", *body.after, "", *body.unit_steps, ""]
    texts += [chosen.test, chosen.units, chosen.guard] if chosen is not None else []
    return (
        tuple(map(plain, texts)),
        tuple(tuple((key, plain(text)) for key, text in each.items()) for each in kwargs),
        chosen is not None and (chosen.nested, chosen.may_be_root, chosen.may_be_container, chosen.item),
        body.draws,
    )


def is_in_place(draft: Draft) -> bool:
    """`model = FSDP(model, …)`, with nothing else that the statement or the draft does."""
    ctx, line = draft.file, enclosing(draft.file, draft.call, cst.SimpleStatementLine)
    statement = line.body[0] if line is not None and len(line.body) == 1 else None
    if not isinstance(statement, cst.Assign) or statement.value is not draft.call or len(statement.targets) != 1:
        return False
    is_same = ctx.code(statement.targets[0].target) == ctx.plain(draft.model)
    is_plain = not (draft.is_function or draft.float32_class or draft.unit_comments or kept_comments(draft))
    return is_same and is_plain and draft.has_root


def _binds(blocks: Sequence[str], draft: Draft) -> set[str]:
    return {node.id for node in _names(blocks, draft) if isinstance(node.ctx, ast.Store)}


def _reads(blocks: Sequence[str], draft: Draft) -> set[str]:
    return {node.id for node in _names(blocks, draft) if isinstance(node.ctx, ast.Load)}


def _names(blocks: Sequence[str], draft: Draft) -> list[ast.Name]:
    trees = [ast.parse(draft.file.plain(block)) for block in blocks]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)]
