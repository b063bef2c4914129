"""**What it does.** Rewrites a loop over the handles of one model or of two, which writes to their flat parameters
element by element, as an average of weights does, into the same loop over their parameters.

**Why.** An FSDP2 model has no handles. What FSDP1 kept of a unit in one flat parameter it keeps in one DTensor for each
parameter; what is computed for each element is the same for either.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp._traversal_utils import _get_fsdp_handles


@torch.no_grad()
def update(model, average, decay):
    for handle, average_handle in zip(_get_fsdp_handles(model), _get_fsdp_handles(average)):
        if handle.flat_param is not None and handle.flat_param.requires_grad:
            average_handle.flat_param.data.mul_(decay).add_(handle.flat_param.data, alpha=1 - decay)


def main(net, other):
    model, average = FSDP(net), FSDP(other)
    update(model, average, 0.9)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


@torch.no_grad()
def update(model, average, decay):
    model.reshard()
    average.reshard()
    for param, average_param in zip(model.parameters(), average.parameters()):
        if param.requires_grad:
            average_param.data.mul_(decay).add_(param.data, alpha=1 - decay)


def main(net, other):
    model, average = fully_shard(net), fully_shard(other)
    update(model, average, 0.9)
```

## Fix safety

The same elements get the same values. Only a loop that writes in place, by methods that take each element by itself, is
rewritten; any other use of a handle is reported. A frozen parameter that stood in one flat parameter with a trained one
is left out now, where the loop asks for `requires_grad`: an average of it is the parameter itself. After an evaluation
the parameters of an FSDP2 root are copies, which is why both models are resharded first.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, Fix, Rule, rewritten
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import names_around
from codemods.reading.code.words import last_name
from codemods.reading.edits.layout import insertion, removal
from codemods.reading.edits.negation import conjuncts, none_test
from codemods.reading.edits.resharding import reshards
from codemods.reading.units.handles import model_of_handles, started

CODE = "FM446"

_WRITES = frozenset(
    {"add_", "addcdiv_", "addcmul_", "clamp_", "copy_", "div_", "fill_", "lerp_", "mul_", "neg_", "sub_"}
)
_WRITES |= {"zero_"}
_SAME = frozenset({"clone", "detach", "double", "float", "to"})


_Handles = dict[str, tuple[cst.BaseExpression, cst.BaseExpression]]
"""By the name of a handle, what gives the handles, and their model."""


def fix(loop: cst.For, ctx: PlannedContext) -> Fix | None:
    """Of `for handle in model._all_handles:`, or a loop over a `zip` of such."""
    if loop.orelse is not None or not ctx.plan.migrates:
        return None
    handles: _Handles = {}
    for target, over in _given(loop, ctx):
        model = model_of_handles(over, ctx)
        if model is None or not isinstance(target, cst.Name) or not isinstance(model, (cst.Name, cst.Attribute)):
            return None
        handles[target.value] = (over, model)
    if not handles or not all(_is_write(each, handles, ctx) for each in loop.body.body):
        return None
    return _rewritten(loop, handles, ctx)


def _given(loop: cst.For, ctx: Context) -> list[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Each variable of the loop, with what it goes over; of a `zip` only, where there are several."""
    over = loop.iter
    if not isinstance(loop.target, cst.Tuple):
        return [(loop.target, over)]
    if not isinstance(over, cst.Call) or ctx.code(over.func) != "zip" or len(over.args) != len(loop.target.elements):
        return []
    pairs = zip(loop.target.elements, over.args, strict=True)
    return [(element.value, argument.value) for element, argument in pairs]


def _is_write(statement: cst.CSTNode, handles: _Handles, ctx: Context) -> bool:
    """Whether a statement writes to flat parameters by element, or asks first whether there is one that is trained."""
    if isinstance(statement, cst.If):
        inner = all(_is_write(each, handles, ctx) for each in statement.body.body)
        return inner and statement.orelse is None and all(_is_question(p, handles) for p in conjuncts(statement.test))
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    small = statement.body[0]
    return isinstance(small, cst.Expr) and _is_chain(small.value, handles) and _is_by_element(small.value, handles, ctx)


def _is_chain(value: cst.BaseExpression, handles: _Handles) -> bool:
    """`handle.flat_param.data.mul_(x).add_(y)`."""
    calls = 0
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value in _WRITES:
        value, calls = value.func.value, calls + 1
    return calls > 0 and _flat(value, handles)


def _flat(value: cst.BaseExpression, handles: _Handles) -> bool:
    """`handle.flat_param` and `handle.flat_param.data`."""
    if isinstance(value, cst.Attribute) and value.attr.value == "data":
        value = value.value
    is_flat = isinstance(value, cst.Attribute) and value.attr.value == "flat_param"
    owner = value.value if is_flat and isinstance(value, cst.Attribute) else None
    return isinstance(owner, cst.Name) and owner.value in handles


def _is_by_element(value: cst.BaseExpression, handles: _Handles, ctx: Context) -> bool:
    """Whether handles are used for nothing but their flat parameters, whose elements each method takes by itself."""
    for node in ctx.inside(value):
        if isinstance(node, cst.Name) and node.value in handles:
            flat = ctx.parent(node)
            if not isinstance(flat, cst.Attribute) or flat.value is not node or flat.attr.value != "flat_param":
                return False
            outer = ctx.parent(flat)
            if isinstance(outer, cst.Attribute) and outer.attr.value == "data":
                outer = ctx.parent(outer)
            if isinstance(outer, cst.Attribute) and outer.attr.value not in _WRITES | _SAME:
                return False
            if isinstance(outer, cst.Arg):
                call = ctx.parent(outer)
                method = call.func if isinstance(call, cst.Call) else None
                if not isinstance(method, cst.Attribute) or method.attr.value not in _WRITES:
                    return False
    return True


def _is_question(part: cst.BaseExpression, handles: _Handles) -> bool:
    asked = none_test(part)
    if asked is not None:
        return asked[1] and _flat(asked[0], handles)
    return isinstance(part, cst.Attribute) and part.attr.value == "requires_grad" and _flat(part.value, handles)


def _rewritten(loop: cst.For, handles: _Handles, ctx: PlannedContext) -> Fix:
    names = _names(loop, handles, ctx)
    edits = [removal(ctx, statement) for statement in started(loop, ctx)]
    lines, imports = reshards(ctx, [model for _, model in handles.values()], loop)
    edits.append(insertion(ctx, loop, lines))
    for over, model in handles.values():
        edits.append(Edit(*ctx.span(over), f"{ctx.quote(model)}.parameters()"))
    for node in ctx.inside(loop):
        if isinstance(node, cst.Attribute) and node.attr.value == "flat_param" and isinstance(node.value, cst.Name):
            edits.append(Edit(*ctx.span(node), names[node.value.value]))
        elif isinstance(node, cst.If):
            edits += _asked(node, ctx)
    for name in ctx.inside(loop.target):
        if isinstance(name, cst.Name) and name.value in names:
            edits.append(Edit(*ctx.span(name), names[name.value]))
    message = "a loop over the flat parameters of handles becomes one over parameters"
    return rewritten(CODE, ctx, loop, edits, message, imports)


def _asked(choice: cst.If, ctx: Context) -> list[Edit]:
    """Of `handle.flat_param is not None and handle.flat_param.requires_grad` the second."""
    parts = conjuncts(choice.test)
    left = [ctx.quote(part) for part in parts if none_test(part) is None]
    return [Edit(*ctx.span(choice.test), " and ".join(left))] if left and len(left) < len(parts) else []


def _names(loop: cst.For, handles: _Handles, ctx: Context) -> dict[str, str]:
    """`param` for the first, and `ema_param` for a handle of `self.ema`."""
    taken = set(names_around(ctx, loop))
    names: dict[str, str] = {}
    for name, (_, model) in handles.items():
        new = f"{last_name(model)}_param" if names else "param"
        while new in taken:
            new += "_"
        taken.add(new)
        names[name] = new
    return names


RULE = Rule(CODE, "averaged-flat-parameters", __doc__, nodes=(cst.For,), fix=fix)
