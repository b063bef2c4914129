"""What a wrapped model does with its own parameters while it runs: those that lie in units are shards there."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.shapes import called_on
from codemods.reading.forwards.run_by import is_own, run_by
from codemods.reading.models.class_layout import model_classes
from codemods.reading.models.makeup import makeup, may_hold
from codemods.reading.parameters.of_model import READERS, Reading, loops_over, parameter_of
from codemods.reading.units.held import unit_classes
from codemods.reading.wraps.manual import argument_name

_FORWARD = "forward"


def readings_while_running(ctx: Context) -> Iterator[Reading]:
    """Loops over `self.parameters()` in the forward of a model that is wrapped with units, or of a part of it that
    holds some, and in what that calls.

    Not for a model that FSDP1 kept flat parameters of: it raised there.
    """
    for forward in ctx.nodes(cst.FunctionDef):
        owner = ctx.scope(forward)
        if forward.name.value == _FORWARD and isinstance(owner, cst.ClassDef):
            inside = (node for method in run_by(forward, owner, ctx) for node in ctx.inside(method.body))
            calls = [node for node in inside if isinstance(node, cst.Call) and is_own(called_on(node, *READERS))]
            for call in calls if calls and _has_units(owner, ctx) else ():
                yield from (Reading(call, loop, parameter_of(call, loop)) for loop in loops_over(call, ctx)[:1])


def _has_units(owner: cst.ClassDef, ctx: Context) -> bool:
    """Whether a constructor call wraps a model of this class, or of one that comes from it, and parts of it; or one
    that holds such a part, of which parts are wrapped.
    """
    calls = [(where, call) for where, call in ctx.wrapping.calls(ctx.path) if _wraps_parts(call)]
    if any(each is owner for where, call in calls for _, each in model_classes(where, call)):
        return True
    held = may_hold(ctx, owner) - {owner}
    around = ((where, call) for where, call in calls if not held.isdisjoint(unit_classes(where, call)))
    return any(each is owner for where, call in around for _, each in makeup(where, call).classes)


def _wraps_parts(call: cst.Call) -> bool:
    """Whether a call has a policy, and FSDP1's parameters keep their shapes."""
    given = {argument_name(argument): argument.value for argument in call.args}
    values = [given.get(name) for name in ("auto_wrap_policy", "use_orig_params")]
    is_named = all(value is not None and not _is_off(value) for value in values)
    return is_named or any(argument.star == "**" for argument in call.args)


def _is_off(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Name) and value.value in {"None", "False"}
