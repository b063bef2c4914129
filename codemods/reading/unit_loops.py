"""Loops over the units of a model: `for unit in FSDP.fsdp_modules(model):`."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.handles import is_reshard
from codemods.reading.shapes import alone
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


def _only(block: cst.BaseSuite) -> cst.CSTNode | None:
    return block.body[0] if isinstance(block, cst.IndentedBlock) and len(block.body) == 1 else None
