"""**What it does.** Finds sharded parameters and gradients in code that takes plain tensors alone: a collective of
`torch.distributed`, a distribution of `torch.distributions`, `torch.tensor` and NumPy's functions of means or norms,
`f"{p.norm():.2f}"`, `.numpy()` and `.tolist()`, a flat vector of them, `torch.allclose`, sums with tensors that are
made by their sizes (`torch.randn(p.shape)`), and hidden states that are made of them (`p.new_zeros(1, 8)`).

**Why.** FSDP1's parameters were plain tensors, pieces of flat ones. FSDP2's are DTensors, and such code raises: "does
not have a sharding strategy registered", "its data is not allocated yet", "Cannot flatten unevenly sharded tensor",
"got mixed torch.Tensor and DTensor", "unsupported format string" (torch 2.13). `vector_to_parameters` does not even
raise: what it puts in the place of a DTensor's data is lost.

## Example

```python
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def share(net, group):
    model = FSDP(net, use_orig_params=True)
    for param in model.parameters():
        dist.broadcast(param.data, src=0, group=group)
```

## Use instead

```python
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def share(net, group):
    model = FSDP(net, use_orig_params=True)
    for param in model.parameters():
        dist.broadcast(param.to_local(), src=0, group=group)
```

## Fix safety

Nothing is changed: whether this rank's piece is meant (`to_local()`) or the whole (`full_tensor()`, on all ranks) is
for a person to say. Norms that are taken and put together in one function are FM214's.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, Origin, finding
from codemods.reading.code.arguments import by_parameter
from codemods.reading.code.enclosing import enclosing, is_self
from codemods.reading.code.shapes import called_on, is_call_to
from codemods.reading.gradients.inside import collectives_on_gradients
from codemods.reading.models.parts import wrapped_around
from codemods.reading.parameters.of_model import READERS, gives_parameters, is_summoned
from codemods.reading.parameters.plain_numbers import Taker, numbers_taken, takes_pieces
from codemods.reading.parameters.sharded_values import is_sharded
from codemods.reading.parameters.stepped import is_in_step

CODE = "FM427"

_COLLECTIVES = frozenset(
    f"torch.distributed.{name}"
    for name in ("all_gather", "all_gather_into_tensor", "all_reduce", "broadcast", "gather", "recv", "reduce", "send")
)
_MAKERS = frozenset({"new_empty", "new_full", "new_ones", "new_zeros"})
_VECTORS = frozenset(
    {
        "torch._utils._flatten_dense_tensors",
        "torch.nn.utils.convert_parameters.parameters_to_vector",
        "torch.nn.utils.parameters_to_vector",
    }
)
_FILLERS = frozenset({"torch.nn.utils.convert_parameters.vector_to_parameters", "torch.nn.utils.vector_to_parameters"})
_LOST = "`vector_to_parameters` puts plain tensors in the place of the data of `{value}`, and FSDP2 loses them"
_HINT_OF_LOST = "cut the vector by the sizes of whole parameters, and write each by p.copy_(distribute_tensor(…))"
_PLAIN = "{taker} makes a plain tensor of the size of a whole parameter, {value}, and raises beside the sharded one"
_HINT_OF_PLAIN = "make it like the parameter (torch.randn_like(p), torch.zeros_like(p)), which is sharded as that is"
_LIKENED = (
    "{maker} makes a DTensor of a sharded parameter outside of the model's forward, which raises beside plain tensors"
)
_HINT_OF_LIKENED = "make a plain one: torch.zeros(…, dtype={value}.dtype, device={value}.device)"
_FLAT = frozenset({"flatten", "ravel", "reshape", "view"})
_OF_SIZES = frozenset(
    f"torch.{name}" for name in ("empty", "full", "normal", "ones", "rand", "randint", "randn", "zeros")
)
_IN_PLACE = frozenset({"add_", "copy_", "div_", "lerp_", "mul_", "sub_"})


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each call."""
    for call in ctx.nodes(cst.Call):
        filled = _filled(call, ctx)
        if filled is not None:
            yield finding(CODE, Level.MANUAL, ctx, call, _LOST.format(value=ctx.code(filled)), _HINT_OF_LOST)
        like = _likened(call, ctx)
        if like is not None:
            message, hint = _LIKENED.format(maker=f"`{ctx.code(call.func)}`"), _HINT_OF_LIKENED
            yield finding(CODE, Level.MANUAL, ctx, call, message, hint.format(value=ctx.code(like)))
        value = _sharded_argument(call, ctx)
        if value is not None and not _is_told_already(call, ctx):
            yield _told(call, f"`{ctx.code(call.func)}`", f"`{ctx.code(value)}`", ctx)
    takers: list[Taker] = [*ctx.nodes(cst.Call), *ctx.nodes(cst.FormattedStringExpression)]
    for taker in takers:
        number = next(iter(numbers_taken(taker, ctx)), None)
        if number is not None and not takes_pieces(taker, ctx):
            told = ctx.code(taker.func) if isinstance(taker, cst.Call) else f'f"{ctx.code(taker)}"'
            yield _told(taker, f"`{told}`", f"`{Origin(number.file, number.value).text}`", ctx)


def _filled(call: cst.Call, ctx: Context) -> cst.BaseExpression | None:
    """The parameters that `vector_to_parameters(vector, model.parameters())` means to fill."""
    given = by_parameter(call.args, ("vec", "parameters")) if ctx.dotted(call.func) in _FILLERS else None
    value = given["parameters"].value if given is not None and "parameters" in given else None
    return value if value is not None and _is_list_of_sharded(value, ctx) else None


def _likened(call: cst.Call, ctx: Context) -> cst.BaseExpression | None:
    """`weight` of `weight.new_zeros(1, size)`, where that is a model's first parameter: of `init_hidden`."""
    owner = called_on(call, *_MAKERS)
    if owner is None or any(_speaks_of(owner, argument.value, ctx) for argument in call.args):
        return None  # what is made as large as a parameter may be meant for it
    return owner if any(_is_first(each.node, each.file) for each in ctx.origins(_of_data(owner))) else None


def _of_data(value: cst.BaseExpression) -> cst.BaseExpression:
    return value.value if isinstance(value, cst.Attribute) and value.attr.value == "data" else value


def _speaks_of(value: cst.BaseExpression, size: cst.BaseExpression, ctx: Context) -> bool:
    return any(ctx.code(each) == ctx.code(value) for each in (size, *ctx.inside(size)))


def _is_first(made: cst.CSTNode | None, ctx: Context) -> bool:
    """`next(model.parameters())` of a wrapped model; of `self`, in a method that is called on one."""
    made = _of_data(made) if isinstance(made, cst.BaseExpression) else None
    model = called_on(made.args[0].value, "parameters") if is_call_to(made, "next") and made.args else None
    if model is None or not is_self(model, ctx):
        return model is not None and not is_summoned(model, ctx) and wrapped_around(model, ctx) is not None
    calls = ((where, call.func) for where, call in ctx.callers(model) if isinstance(call.func, cst.Attribute))
    return any(wrapped_around(on.value, where) is not None and not is_summoned(on, where) for where, on in calls)


def _told(node: cst.CSTNode, taker: str, value: str, ctx: Context) -> Finding:
    if isinstance(node, cst.Call) and ctx.dotted(node.func) in _OF_SIZES:
        return finding(CODE, Level.MANUAL, ctx, node, _PLAIN.format(taker=taker, value=value), _HINT_OF_PLAIN)
    writes = isinstance(node, cst.Call) and ctx.dotted(node.func) in _COLLECTIVES - {"torch.distributed.send"}
    whole = ": what it writes into .full_tensor() is lost" if writes else ", or .full_tensor() on all ranks"
    message = f"{taker} gets a sharded tensor, {value}, and raises: it takes plain ones"
    hint = f"give it .to_local(), this rank's piece{whole}"
    return finding(CODE, Level.MANUAL, ctx, node, message, hint)


def _sharded_argument(call: cst.Call, ctx: Context) -> cst.BaseExpression | None:
    name = ctx.dotted(call.func) or ""
    given = [argument.value for argument in call.args]
    if name in _COLLECTIVES or name == "torch.allclose":
        return next((value for value in given if is_sharded(value, ctx)), None)
    if name.startswith("torch.distributions."):
        owners = ((value, _owner(value, _MAKERS)) for value in given)
        return next((v for v, owner in owners if is_sharded(owner, ctx)), None)
    if name in _VECTORS and given:
        return given[0] if _is_list_of_sharded(given[0], ctx) else None
    if name in _OF_SIZES and _meets_sharded(call, ctx):
        return next((value for value in given if _is_size_of_sharded(value, ctx)), None)
    if not isinstance(call.func, cst.Attribute):
        return None
    method, owner = call.func.attr.value, call.func.value
    if method == "numpy" or (method in _FLAT and _is_flat(call)):
        return owner if is_sharded(owner, ctx) else None
    return None


def _is_list_of_sharded(value: cst.BaseExpression, ctx: Context) -> bool:
    """`model.parameters()`, `list(model.parameters())`, and `[params[i] for i in some]` of that list."""
    if isinstance(value, cst.ListComp) and isinstance(value.elt, cst.Subscript):
        value = value.elt.value
    made = [(o.file, o.node) for o in ctx.origins(value)] if isinstance(value, cst.Name) else [(ctx, value)]
    return any(gives_parameters(node, where) for where, node in made)


def _is_flat(call: cst.Call) -> bool:
    """`flatten()`, `ravel()`, `view(-1)` and `reshape(1, -1)`: all dimensions become one."""
    sizes = [argument.value for argument in call.args]
    numbers = [size.expression if isinstance(size, cst.UnaryOperation) else size for size in sizes]
    if not sizes:
        return True
    return isinstance(sizes[-1], cst.UnaryOperation) and all(
        isinstance(number, cst.Integer) and number.value == "1" for number in numbers
    )


def _is_size_of_sharded(value: cst.BaseExpression, ctx: Context) -> bool:
    """`p.shape` and `p.grad.size()`; `shape[:-2] + shape[-1:]` of `shape = grad.shape` (Adafactor)."""
    if isinstance(value, cst.BinaryOperation):
        return _is_size_of_sharded(value.left, ctx)
    if isinstance(value, cst.Subscript):
        return _is_size_of_sharded(value.value, ctx)
    if isinstance(value, cst.Name):
        return any(not isinstance(m, cst.Name) and _is_size_of_sharded(m, where) for where, m in ctx.bound(value) or ())
    size = value.func if isinstance(value, cst.Call) and not value.args else value
    return isinstance(size, cst.Attribute) and size.attr.value in {"shape", "size"} and is_sharded(size.value, ctx)


def _meets_sharded(made: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a new tensor is added to a sharded one, multiplied or copied, or is kept in the state of an optimizer.

    By way of a variable too: `z = torch.randn(p.shape)`, and `p.data + z` below.
    """
    for outer in ctx.ancestors(made):
        if isinstance(outer, cst.BinaryOperation):
            if any(is_sharded(side, ctx) for side in (outer.left, outer.right)):
                return True
        elif isinstance(outer, cst.Call) and isinstance(outer.func, cst.Attribute):
            if outer.func.attr.value in _IN_PLACE and is_sharded(outer.func.value, ctx):
                return True
        elif isinstance(outer, cst.Assign):
            kept = outer.targets[0].target
            if isinstance(kept, cst.Name) and isinstance(made, cst.Call):
                return any(_meets_sharded(use, ctx) for use in ctx.uses(outer))
            return isinstance(kept, cst.Subscript) and is_in_step(outer, ctx)
        elif isinstance(outer, cst.BaseSmallStatement):
            return False
    return False


def _owner(value: cst.BaseExpression, methods: frozenset[str]) -> cst.BaseExpression:
    """`p.grad` of `p.grad.new_full(shape, 0.5)`; any other expression as it is."""
    return called_on(value, *methods) or value


def _is_told_already(call: cst.Call, ctx: Context) -> bool:
    """Whether the rule for gradients in collectives names the function."""
    return call in collectives_on_gradients(enclosing(ctx, call, cst.FunctionDef) or ctx.top, ctx)


CHECK = Check(CODE, "plain-tensor-code", __doc__, words=(*READERS, "weight", "bias", "params"), find=find)
