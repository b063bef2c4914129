"""Loops over the units of a model: `for unit in FSDP.fsdp_modules(model):`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.shapes import alone
from codemods.reading.code.words import is_name
from codemods.reading.units.handles import is_reshard
from codemods.tables.names import WRAPPER

METHOD = "fsdp_modules"


def gives_units(call: cst.CSTNode, ctx: Context) -> bool:
    """Whether it is `FSDP.fsdp_modules(model)`, of a model alone."""
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute) or call.func.attr.value != METHOD:
        return False
    if len(call.args) != 1 or call.args[0].star:
        return False
    if call.args[0].keyword is not None and call.args[0].keyword.value != "module":
        return False
    return ctx.fsdp1(call.func) == f"{WRAPPER}.{METHOD}" or ModelKind.FSDP in ctx.kinds(call.func.value)


def short_loop(loop: cst.CSTNode | None, ctx: Context) -> cst.For | None:
    """A loop over units that calls something of each, and changes no model while it goes over it.

    It becomes one over all modules, with what it does a level deeper, under a test.
    """
    if not isinstance(loop, cst.For) or loop.orelse is not None or not gives_units(loop.iter, ctx):
        return None
    line = _only(loop.body)
    if isinstance(line, cst.If) and line.orelse is None:
        line = _only(line.body)
    small = alone(line)
    called = small.value.func if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call) else None
    is_own = isinstance(called, cst.Attribute) and ctx.code(called.value) == ctx.code(loop.target)
    return loop if called is not None and (is_own or is_reshard(called, ctx)) else None


def units_of(unit: cst.Name, ctx: Context) -> Iterator[cst.BaseExpression]:
    """`model` of `for m in FSDP.fsdp_modules(model)`: beside others too, and by a function that returns them.

    Of the models in a container it is the container: `self.teacher` of `get_fsdp_modules(self.teacher[k])`.
    """
    for outer in ctx.ancestors(unit):
        loop = outer.for_in if isinstance(outer, cst.BaseComp) else outer
        over = _goes_over(loop, unit.value) if isinstance(loop, (cst.For, cst.CompFor)) else None
        if isinstance(over, cst.Call) and (gives_units(over, ctx) or _returns_units(over, ctx)):
            model = over.args[0].value
            while isinstance(model, cst.Subscript):
                model = model.value
            yield model


def _goes_over(loop: cst.For | cst.CompFor, name: str) -> cst.BaseExpression | None:
    """What a loop takes the values of a name from: one argument of a `zip`."""
    if is_name(loop.target, name):
        return loop.iter
    if not isinstance(loop.target, cst.Tuple) or not isinstance(loop.iter, cst.Call):
        return None
    pairs = zip(loop.target.elements, loop.iter.args, strict=False)
    is_zip = is_name(loop.iter.func, "zip")
    return next((given.value for each, given in pairs if is_zip and is_name(each.value, name)), None)


def _returns_units(call: cst.Call, ctx: Context) -> bool:
    found = [(where, node) for where, function in ctx.runs(call) for node in where.inside(function)]
    returned = [(where, node.value) for where, node in found if isinstance(node, cst.Return) and node.value is not None]
    return len(call.args) == 1 and any(gives_units(value, where) for where, value in returned)


def _only(block: cst.BaseSuite) -> cst.CSTNode | None:
    return block.body[0] if isinstance(block, cst.IndentedBlock) and len(block.body) == 1 else None
