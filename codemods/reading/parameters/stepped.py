"""The parameters that an optimizer goes over: `for p in group["params"]:`, in a class of its own or in a loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import libcst as cst

from codemods.api import Context
from codemods.reading.parameters.lists import is_group
from codemods.reading.parameters.of_model import Loop, Reading, parameter_of

_OPTIMIZER = "torch.optim."


def stepped(ctx: Context) -> Iterator[Reading]:
    """Every loop over the parameters of a group, in an optimizer that a file writes itself and the program makes.

    Which model's they are is for the caller to know: an optimizer is handed them where it is made.
    """
    loops: list[Loop] = [loop for kind in get_args(Loop) for loop in ctx.nodes(kind)]
    for loop in loops:
        group = _group(loop, ctx)
        if group is not None:
            yield Reading(group, loop, parameter_of(group, loop))


def own_optimizers(ctx: Context) -> list[cst.ClassDef]:
    """The optimizers that a file writes itself, and that something uses."""
    owners = (owner for owner in ctx.nodes(cst.ClassDef) if _is_optimizer(owner, ctx))
    return [owner for owner in owners if any(ctx.references_to(owner))]


def is_stepped(value: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a name is the variable of such a loop."""
    loops = (outer for outer in ctx.ancestors(value) if isinstance(outer, Loop)) if isinstance(value, cst.Name) else ()
    groups = ((loop, _group(loop, ctx)) for loop in loops)
    return any(group is not None and ctx.code(parameter_of(group, loop)) == ctx.code(value) for loop, group in groups)


def is_in_step(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether a node stands in such a loop."""
    return any(_group(loop, ctx) is not None for loop in ctx.ancestors(node) if isinstance(loop, Loop))


def _group(loop: Loop, ctx: Context) -> cst.Subscript | None:
    """`group["params"]` of the head of a loop."""
    over = loop.iter if isinstance(loop, cst.For) else loop.for_in.iter
    groups = (each for each in ctx.inside(over) if isinstance(each, cst.Subscript))
    found = next((each for each in groups if is_group(each)), None)
    return found if found is not None and _is_in_optimizer(loop, ctx) else None


def _is_in_optimizer(loop: cst.CSTNode, ctx: Context) -> bool:
    around = next((outer for outer in ctx.ancestors(loop) if isinstance(outer, cst.ClassDef)), None)
    if around is None or not _is_optimizer(around, ctx):
        return False
    return any(isinstance(where.parent(used), cst.Call) for where, used in ctx.references_to(around))


def _is_optimizer(owner: cst.ClassDef, ctx: Context, depth: int = 3) -> bool:
    """Whether a class is one of torch's optimizers, by bases of the program's own or without."""
    for base in owner.bases:
        if (ctx.dotted(base.value) or "").startswith(_OPTIMIZER):
            return True
        made = ctx.origins(base.value) if depth else ()
        if any(isinstance(o.node, cst.ClassDef) and _is_optimizer(o.node, o.file, depth - 1) for o in made):
            return True
    return False
