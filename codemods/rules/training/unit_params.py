"""**What it does.** Rewrites `unit.params`, the flat parameters of an FSDP1 unit, into `unit_params(unit)` of the
support module, where a list collects them for `torch._foreach_…` functions, as an average of weights does.

**Why.** An FSDP2 unit has no attribute `params`. What FSDP1 kept of it in one flat parameter it keeps in one DTensor
for each parameter; what these functions compute of each element is the same for either.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


@torch.no_grad()
def update(model, average, decay):
    params, averages = [], []
    for unit, other in zip(FSDP.fsdp_modules(model), FSDP.fsdp_modules(average)):
        params += unit.params
        averages += other.params
    torch._foreach_mul_(averages, decay)
    torch._foreach_add_(averages, params, alpha=1 - decay)


def main(net, other):
    model, average = FSDP(net), FSDP(other)
    update(model, average, 0.9)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FSDPModule, fully_shard

from fsdp2_support import unit_params


@torch.no_grad()
def update(model, average, decay):
    params, averages = [], []
    for unit, other in zip(
        [m for m in model.modules() if isinstance(m, FSDPModule)],
        [m for m in average.modules() if isinstance(m, FSDPModule)],
    ):
        params += unit_params(unit)
        averages += unit_params(other)
    torch._foreach_mul_(averages, decay)
    torch._foreach_add_(averages, params, alpha=1 - decay)


def main(net, other):
    model, average = fully_shard(net), fully_shard(other)
    update(model, average, 0.9)
```

## Fix safety

The same elements get the same values: the losses of an average on two ranks are equal. Only a list that starts empty
and goes to such functions alone is followed; any other use of `params` is reported, as a flat parameter has one
dimension, and all of a unit. The unit is resharded first, since a forward without a backward leaves copies in it. FSDP1
went on with such copies in the next forward: for review, unless the program reshards its models itself.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Fix, Import, Level, ModelKind, Rule, finding
from codemods.reading.code.enclosing import is_label
from codemods.reading.forwards.calls import GRAD_MODES

CODE = "FM451"

_BY_ELEMENT = "torch._foreach_"
_NORM = "torch._foreach_norm"


def fix(node: cst.Attribute, ctx: Context) -> Fix | None:
    """Of `unit.params`."""
    if node.attr.value != "params" or ModelKind.FSDP not in ctx.kinds(node.value):
        return None
    name = _list_that_takes(node, ctx)
    if name is None or not _is_for_elements(name, ctx):
        return None
    item = ctx.named(Import(SUPPORT, "unit_params"), node)
    text = f"{item.local}({ctx.quote(node.value)})"
    level, message, hint = Level.REWRITTEN, "the flat parameters of a unit become unit_params, a support function", ""
    if not ctx.mentions("_reshard") and ctx.mentions(*GRAD_MODES):
        level, hint = Level.REVIEW, "compare the losses of its evaluations with those of new runs only"
        message += "; behind an evaluation FSDP1 did not use what is written here in the next one"
    return Fix([Edit(*ctx.bare_span(node), text)], [finding(CODE, level, ctx, node, message, hint)], [item])


def _list_that_takes(node: cst.Attribute, ctx: Context) -> cst.Name | None:
    """`found` of `found += unit.params` and `found.extend(unit.params)`."""
    holder = ctx.parent(node)
    if isinstance(holder, cst.AugAssign) and isinstance(holder.operator, cst.AddAssign):
        return holder.target if isinstance(holder.target, cst.Name) else None
    call = ctx.parent(holder) if isinstance(holder, cst.Arg) else None
    method = call.func if isinstance(call, cst.Call) else None
    if isinstance(method, cst.Attribute) and method.attr.value == "extend" and isinstance(method.value, cst.Name):
        return method.value
    return None


def _is_for_elements(name: cst.Name, ctx: Context) -> bool:
    """Whether a list starts empty, takes nothing but `params`, and goes to functions of each element alone."""
    function = ctx.scope(name)
    named = (each for each in ctx.inside(function) if isinstance(each, cst.Name) and each.value == name.value)
    uses = [each for each in named if not is_label(each, ctx)]
    return isinstance(function, cst.FunctionDef) and all(_is_known(each, ctx) for each in uses)


def _is_known(use: cst.Name, ctx: Context) -> bool:
    holder = ctx.parent(use)
    if isinstance(holder, (cst.AssignTarget, cst.Element)):
        return _starts_empty(use, ctx)
    if isinstance(holder, cst.AugAssign):
        return holder.target is use and isinstance(holder.value, cst.Attribute) and holder.value.attr.value == "params"
    call = ctx.parent(holder) if isinstance(holder, (cst.Arg, cst.Attribute)) else None
    if not isinstance(call, cst.Call):
        return False
    if isinstance(holder, cst.Attribute):
        given = [argument.value for argument in call.args]
        are_params = [isinstance(each, cst.Attribute) and each.attr.value == "params" for each in given]
        return call.func is holder and holder.attr.value == "extend" and are_params == [True]
    made = ctx.dotted(call.func) or ""
    return made.startswith(_BY_ELEMENT) and not made.startswith(_NORM)


def _starts_empty(use: cst.Name, ctx: Context) -> bool:
    """`params = []`, and `params, averages = [], []`."""
    statement = next((outer for outer in ctx.ancestors(use) if isinstance(outer, cst.Assign)), None)
    if statement is None or len(statement.targets) != 1:
        return False
    target, value = statement.targets[0].target, statement.value
    if target is use:
        return isinstance(value, cst.List) and not value.elements
    if not isinstance(target, cst.Tuple) or not isinstance(value, cst.Tuple):
        return False
    pairs = zip(target.elements, value.elements, strict=False)
    made = next((given.value for named, given in pairs if named.value is use), None)
    return isinstance(made, cst.List) and not made.elements


RULE = Rule(CODE, "flat-parameters-of-units", __doc__, nodes=(cst.Attribute,), fix=fix, methods=("params",))
