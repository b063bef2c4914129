"""A mesh that one branch makes goes there into the dict of arguments that it is made beside.

if args.hybrid:
    fsdp_kwargs["mesh"] = init_device_mesh("cuda", (nodes, per_node), mesh_dim_names=("replicate", "shard"))

The other branch then needs no None. A broadcast in the mesh's groups asks whether there is one.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit
from codemods.reading.code.enclosing import contains, enclosing
from codemods.reading.code.words import is_name

from ..draft import Draft
from ..places.in_place import mentions
from ..strategy.names import Strategy
from .ranks import Ranks


def put_into_dict(ranks: Ranks, strategy: Strategy, draft: Draft) -> bool:
    """Where the mesh is a variable for this call alone, and the dict is there before it and is no other one after."""
    value, chosen = ranks.node, strategy.value
    if not isinstance(value, cst.Name) or not isinstance(chosen, cst.Name) or "sync_module_states" in draft.given:
        return False
    lines = _made_and_nones(value, draft)
    is_own = strategy.is_own and strategy.kwargs.isidentifier()
    if lines is None or not is_own or draft.common_kwargs.get("mesh") != draft.file.quote(value):
        return False
    made, *nones = lines
    target = cst.ensure_type(made.body[0], cst.Assign).targets[0].target
    put = f'{strategy.kwargs}["mesh"]'
    if not _is_there(chosen, made, draft) or _is_too_long(made, len(put) - len(value.value), draft):
        return False
    draft.edits.append((draft.file, Edit(*draft.file.span(target), put)))
    draft.dead += nones
    del draft.common_kwargs["mesh"]
    return True


def _made_and_nones(value: cst.Name, draft: Draft) -> list[cst.SimpleStatementLine] | None:
    """The statement that makes the mesh, then those that set the variable to None, if that is all there is of it."""
    ctx = draft.file
    bound = [node for where, node in ctx.bound(value) or () if where.path == ctx.path]
    targets, uses = mentions(ctx, ctx.scope(draft.call), value.value)
    lines = {node: enclosing(ctx, node, cst.SimpleStatementLine) for node in bound}
    nones = [line for node, line in lines.items() if line is not None and is_name(node, "None")]
    made = [line for node, line in lines.items() if line is not None and line not in nones]
    if len(made) != 1 or len(bound) != len(targets) or uses != [value]:
        return None
    if not all(line is not None and _is_all(line, node) for node, line in lines.items()):
        return None
    blocks = [ctx.parent(line) for line in nones]
    has_more = all(isinstance(block, cst.IndentedBlock) and len(block.body) > 1 for block in blocks)
    return [*made, *nones] if nones and has_more else None


def _is_all(line: cst.SimpleStatementLine, value: cst.BaseExpression) -> bool:
    """Whether a line does no more than to give one name the value."""
    statement = line.body[0]
    return len(line.body) == 1 and isinstance(statement, cst.Assign) and statement.value is value


def _is_there(chosen: cst.Name, made: cst.SimpleStatementLine, draft: Draft) -> bool:
    """Whether what is chosen is bound wherever the mesh is made, and not anew below."""
    ctx = draft.file
    bound = ctx.bound(chosen) or ()
    near = [node for where, node in bound if where.path == ctx.path and not ctx.excludes(node, made)]
    is_above = all(ctx.span(node)[1] < ctx.span(made)[0] for node in near)
    return is_above and any(_is_before(node, made, ctx) for node in near)


def _is_before(node: cst.BaseExpression, made: cst.SimpleStatementLine, ctx: Context) -> bool:
    line = enclosing(ctx, node, cst.SimpleStatementLine)
    block = ctx.parent(line) if line is not None else None
    return block is not None and contains(ctx, block, made)


def _is_too_long(made: cst.SimpleStatementLine, more: int, draft: Draft) -> bool:
    """Whether the line of the mesh gets too long by the longer name, with what else is put into it."""
    ctx = draft.file
    start, end = ctx.span(made)
    added = [edit.text for where, edit in draft.edits if where.path == ctx.path and start <= edit.start < end]
    first, *others = ctx.code(made).split("\n")
    if others or any("\n" in text for text in added):
        return False
    indent = len(ctx.text[:start].rpartition("\n")[2])
    return indent + len(first) + sum(len(ctx.plain(text)) for text in added) + more > ctx.width
