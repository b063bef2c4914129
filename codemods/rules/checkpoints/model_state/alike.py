"""`average.load_state_dict(model.state_dict())` of two models that are sharded alike."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.enclosing import call_given
from codemods.reading.code.shapes import called_on
from codemods.reading.parameters.updated_alike import are_sharded_alike
from codemods.reading.state_dicts.model_loading import has_own_method

_LOAD, _READ = "load_state_dict", "state_dict"


def is_between_alike(call: cst.Call, ctx: Context) -> bool:
    """Whether a state dict goes from a sharded model straight into another over the same ranks, or into itself.

    FSDP2's shards are copied as they are, whatever the units (torch 2.13, 2 ranks).
    """
    load = call if called_on(call, _LOAD) is not None else call_given(call, ctx)
    read = load.args[0].value if load is not None and load.args and not _says_more(load, ctx) else None
    into, out_of = called_on(load, _LOAD), called_on(read, _READ)
    if into is None or out_of is None or not isinstance(read, cst.Call) or read.args:
        return False
    if ctx.wrapping.compiles(ctx.path) or has_own_method(into, ctx) or ctx.mentions("cpu_offload"):
        return False
    return _is_same(into, out_of, ctx) or are_sharded_alike((into, out_of), ctx)


def _says_more(load: cst.Call, ctx: Context) -> bool:
    """Than to load. `assign=True` has a sharded model take other parameters than its optimizer has."""
    more = [argument.keyword.value if argument.keyword is not None else "" for argument in load.args[1:]]
    model = called_on(load, _LOAD)
    return bool(more) and (more != ["assign"] or model is None or ModelKind.FSDP in ctx.kinds(model))


def _is_same(into: cst.BaseExpression, out_of: cst.BaseExpression, ctx: Context) -> bool:
    """`model.load_state_dict(model.state_dict(), assign=True)`: its own tensors, sharded or not."""
    return ctx.code(into) == ctx.code(out_of) and ctx.same_meaning(into, out_of)
