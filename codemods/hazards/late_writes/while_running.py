"""Where a model that FSDP1 did not shard writes to its own parameters in its forward: a momentum encoder's update."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.places import base, bound
from codemods.reading.code.shapes import called_on, is_attribute
from codemods.reading.code.words import is_name
from codemods.reading.forwards.run_by import run_by
from codemods.reading.models.class_layout import model_classes
from codemods.reading.parameters.of_model import READERS, parameter_of
from codemods.reading.units.held import is_unit, unit_classes
from codemods.reading.wraps.process_groups import REPLICATED, strategies

_FORWARD = "forward"
_FLAG = "requires_grad_"


def written_while_running(ctx: Context) -> Iterator[cst.CSTNode]:
    """One write of each method of such a model, to parameters that lie in no unit of their own."""
    wraps = [(where, call) for where, call in ctx.wrapping.calls(ctx.path) if REPLICATED in strategies(where, call)]
    told: set[cst.CSTNode] = set()
    for where, call in wraps:
        classes, units = list(model_classes(where, call)), unit_classes(where, call)
        for owner in (each for at, each in classes if at.path == ctx.path):
            forwards = [each for each in owner.body.body if isinstance(each, cst.FunctionDef)]
            for method in (m for f in forwards if f.name.value == _FORWARD for m in run_by(f, owner, ctx)):
                for write, layer in _writes(method, ctx):
                    if method not in told and not is_unit(layer, classes, units):
                        told.add(method)
                        yield write


def _writes(method: cst.FunctionDef, ctx: Context) -> Iterator[tuple[cst.CSTNode, str]]:
    """Each write to a parameter of the model, and the attribute that it lies in: `k` of `self.k.parameters()`."""
    for node in ctx.inside(method.body):
        written = _written(node)
        while is_attribute(written, "data"):
            written = written.value
        if isinstance(written, cst.Name):
            over = [(loop, each) for loop in _loops(written, ctx) for each in ctx.inside(loop.iter)]
            read = [call for loop, call in over if _gives(written, call, loop)]
            owners = [each for each in (called_on(call, *READERS) for call in read) if each is not None]
        else:
            owners = [written.value] if is_attribute(written, "weight", "bias") else []
        yield from ((node, path.split(".")[1]) for path in map(base, owners) if path and path.startswith("self."))


def _loops(name: cst.Name, ctx: Context) -> Iterator[cst.For]:
    loops = (outer for outer in ctx.ancestors(name) if isinstance(outer, cst.For))
    return (loop for loop in loops if name.value in set(bound(loop.target)))


def _gives(param: cst.Name, read: cst.CSTNode, loop: cst.For) -> bool:
    """Whether a loop over `self.k.parameters()`, and others beside it, calls what that gives by a name."""
    return isinstance(read, cst.Call) and is_name(parameter_of(read, loop), param.value)


def _written(node: cst.CSTNode) -> cst.BaseExpression | None:
    """What `p.copy_(…)` and `p.data = …` write to."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        name = node.func.attr.value
        return node.func.value if name.endswith("_") and not name.endswith("__") and name != _FLAG else None
    target = node.target if isinstance(node, (cst.AssignTarget, cst.AugAssign)) else None
    return target if is_attribute(target, "data") else None
