"""**What it does.** Finds weights that are initialised, and modules that are replaced, in a model that is wrapped
already.

**Why.** Under FSDP2 each rank writes into DTensors: a random initialisation is another one than on a whole tensor,
and noise that is drawn like a gradient is another one than on FSDP1's flat pieces.
A module that is put in afterwards belongs to no unit: its parameters are never synchronised, without an error, and
what takes them together with DTensors (`clip_grad_norm_`, an optimizer with `foreach`) raises; FSDP1 had plain tensors
in both. Weights that are tied afterwards come apart when the units put their own parameters back. And what a model
writes into its own parameters while it runs goes into the gathered copy under FSDP2, and is lost with it: under
NO_SHARD FSDP1 had nothing to gather, and kept it.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net)
    model.head = torch.nn.Linear(8, 2)
    return model
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    net.head = torch.nn.Linear(8, 2)
    return FSDP(net)
```

## Fix safety

Nothing is changed: it is reported, for you to decide.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.reading.code.enclosing import enclosing, is_self
from codemods.reading.code.shapes import called_on, indexed_front, is_attribute
from codemods.reading.code.words import last_name
from codemods.reading.models.parts import wrapped_around
from codemods.reading.parameters.lists import loops_around
from codemods.reading.parameters.of_model import is_shard, is_summoned, models_around
from codemods.reading.parameters.sharded_values import is_sharded
from codemods.reading.wrappers.inner_module import may_be_inner_module
from codemods.reading.wraps.flat_parameters import may_have_had_flat_parameters
from codemods.tables.layers import BARE
from codemods.tables.modules import KEEP_PARAMETERS

from .while_running import written_while_running

CODE = "FM416"

_ADDED = (
    "a module that is put into a sharded model belongs to no unit: its parameters are never synchronised, and "
    "clip_grad_norm_ and foreach optimizers raise over plain tensors beside DTensors"
)
_PUT_BEFORE = "put it in before the model is sharded"
_LOOPS = 3
"""How many loops, one in the other, are followed to the module that they go over."""
_TIED = "weights that are tied in a sharded model come apart when its units put their parameters back"
_TIE_BEFORE = "tie them before the model is sharded, in one unit"
_NOISE = "random values are drawn for shards: FSDP2's are other pieces than FSDP1's, so that they are other values"
_COMPARE_SEEDS = "compare runs of several seeds"
_INSIDE = "a model writes to its parameters while it runs: NO_SHARD kept that, FSDP2 loses it with the gathered copies"
_WRITE_OUTSIDE = "write outside of the forward, on the shards: in front of the call of the model"
_ADDS = frozenset({"add_module", "register_module", "register_parameter", "append", "extend", "insert"})


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each write."""
    tying = tying_names(ctx)
    for call in ctx.nodes(cst.Call):
        written = _written(ctx, call)
        if written is not None and not is_summoned(call, ctx):
            message = "weights of a sharded model are initialised: random values differ from those of whole tensors"
            yield finding(CODE, Level.MANUAL, ctx, call, message, "initialise before the model is sharded")
        elif _draws_like_shard(ctx, call) and not is_summoned(call, ctx):
            yield finding(CODE, Level.REVIEW, ctx, call, _NOISE, _COMPARE_SEEDS)
        if _initialises(ctx, call):
            message = "a sharded model is initialised by its own method: random values differ from FSDP1's"
            hint = "initialise before the model is sharded, or inside of summon_full_params, and expect other numbers"
            yield finding(CODE, Level.MANUAL, ctx, call, message, hint)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in tying and _ties(ctx, call):
            yield finding(CODE, Level.MANUAL, ctx, call, _TIED, _TIE_BEFORE)
        if _puts_in(ctx, call):
            yield finding(CODE, Level.MANUAL, ctx, call, _ADDED, _PUT_BEFORE)
    for write in written_while_running(ctx):
        yield finding(CODE, Level.MANUAL, ctx, write, _INSIDE, _WRITE_OUTSIDE)
    for node in ctx.nodes(cst.Assign):
        target = node.targets[0].target
        if not isinstance(target, (cst.Attribute, cst.Subscript)) or is_self(target.value, ctx):
            continue  # its own method, of a model that is not sharded there
        if _is_module(ctx, node.value) and _is_in_model(ctx, target.value, node.value):
            yield finding(CODE, Level.MANUAL, ctx, node, _ADDED, _PUT_BEFORE + _shard_too(ctx, target, node.value))
        tied = is_weight(target) and is_weight(node.value)
        if tied and _is_of_model(ctx, target.value) and _is_of_model(ctx, node.value):
            yield finding(CODE, Level.MANUAL, ctx, node, _TIED, _TIE_BEFORE)


def _written(ctx: Context, call: cst.Call) -> cst.BaseExpression | None:
    """The sharded parameter that `torch.nn.init.normal_(p)` or `p.data.normal_()` writes to."""
    if (ctx.dotted(call.func) or "").startswith("torch.nn.init."):
        weight = call.args[0].value if call.args else call
        if last_name(call.func) in _SAME and not _was_flat(ctx, weight):
            return None
        return weight if _is_of_model(ctx, weight) or _is_of_loop(ctx, weight) else None
    draws = isinstance(call.func, cst.Attribute) and call.func.attr.value in _DRAWS
    return call.func.value if isinstance(call.func, cst.Attribute) and draws and _is_of_loop(ctx, call.func) else None


def _draws_like_shard(ctx: Context, call: cst.Call) -> bool:
    """`torch.randn_like(p.grad)`, `torch.empty_like(p).normal_()`."""
    if ctx.dotted(call.func) in _RANDOM_LIKE and call.args:
        return is_sharded(call.args[0].value, ctx)
    return is_attribute(call.func, *_DRAWS) and is_sharded(call.func.value, ctx)


def _was_flat(ctx: Context, weight: cst.BaseExpression) -> bool:
    """Whether `model.head.weight` may have been none of FSDP1's parameters, which lost what was written to it."""
    found = wrapped_around(weight.value, ctx) if isinstance(weight, cst.Attribute) else None
    return found is not None and may_have_had_flat_parameters(found[1], found[0])


def _is_of_loop(ctx: Context, weight: cst.BaseExpression) -> bool:
    """`p` in `for p in model.parameters()`, `m.weight` in `for m in model.modules()`; not in the model's own."""
    while isinstance(weight, cst.Attribute) and weight.attr.value in {"data", *_DRAWS}:
        weight = weight.value
    owners = [weight.value] if isinstance(weight, cst.Attribute) else models_around(weight, ctx)
    if not is_shard(weight, ctx):
        return any(_is_inside(ctx, each) for each in owners)
    found = [wrapped_around(owner, ctx) for owner in owners]
    return not found or any(each is not None and not is_self(each[1], each[0]) for each in found)


def _is_inside(ctx: Context, owner: cst.BaseExpression, depth: int = _LOOPS) -> bool:
    """`net` below `model = FSDP(net)`, there or where it is given to the function; `m` in `for m in net.modules()`."""
    root = indexed_front(owner)
    if not isinstance(root, cst.Name) or is_self(root, ctx):
        return False
    over = [called_on(node, *_PARTS) for each in loops_around(root, ctx) for node in ctx.inside(each)]
    if depth and any(_is_inside(ctx, each, depth - 1) for each in over if each is not None):
        return True
    places = [(ctx, root), *((where, given) for where, _, given in ctx.passed_to(root, root.value))]
    return any(may_be_inner_module(each, each, where) for where, each in places)


_DRAWS = frozenset({"bernoulli_", "exponential_", "log_normal_", "normal_", "random_", "uniform_"})
_RANDOM_LIKE = frozenset({"torch.rand_like", "torch.randint_like", "torch.randn_like"})
_PARTS = ("children", "modules", "named_children", "named_modules")
_SAME = frozenset({"constant_", "ones_", "zeros_"})
"""Functions that write the same into a shard as into a whole tensor."""
_INITIALISERS = frozenset({"reset_parameters", "reset_weights", "init_weights", "init_parameters"})
_INITIALISERS |= {"initialize_weights", "initialize_parameters", "initialise_weights", "initialise_parameters"}


def _initialises(ctx: Context, call: cst.Call) -> bool:
    """`model.reset_parameters()` behind the wrap, of the wrapped model or of the module that was wrapped."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _INITIALISERS:
        return False
    if is_summoned(call, ctx):
        return False
    model = call.func.value
    return _is_of_model(ctx, model) or (not is_self(model, ctx) and may_be_inner_module(model, call, ctx))


def _ties(ctx: Context, call: cst.Call) -> bool:
    """`model.post_init()` behind the wrap, where it ties weights."""
    if not isinstance(call.func, cst.Attribute) or is_self(call.func.value, ctx):
        return False
    return ModelKind.FSDP in ctx.kinds(call.func.value) and ties_weights(call, ctx)


def _shard_too(ctx: Context, target: cst.BaseExpression, value: cst.BaseExpression) -> str:
    if isinstance(value, cst.Call) and (ctx.dotted(value.func) or "").endswith(".Parameter"):
        return ""
    return f", or call fully_shard({ctx.code(target).replace('.module.', '.')}) below, with the arguments of the others"


def _puts_in(ctx: Context, call: cst.Call) -> bool:
    """`model.add_module("head", Head())`, `setattr(model, "head", Head())`, `model.layers.append(Head())`."""
    if isinstance(call.func, cst.Name) and call.func.value == "setattr" and len(call.args) == 3:
        return _is_module(ctx, call.args[2].value) and _is_in_model(ctx, call.args[0].value, call.args[2].value)
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _ADDS or not call.args:
        return False
    given = call.args[-1].value
    modules = [each.value for each in given.elements] if isinstance(given, cst.List) else [given]
    return any(_is_module(ctx, each) and _is_in_model(ctx, call.func.value, each) for each in modules)


def _is_module(ctx: Context, node: cst.BaseExpression) -> bool:
    """Whether a module with parameters is made, or a parameter, and nothing else: here, or in what is called here."""
    if not isinstance(node, (cst.Call, cst.Name)):
        return False
    called = ctx.runs(node) if isinstance(node, cst.Call) else ()
    homes = [ctx.scope(node), *(function for _, function in called)]
    made = [origin for origin in ctx.origins(node) if not origin.is_none]
    return bool(made) and all(
        isinstance(each.node, cst.Call) and each.file.scope(each.node) in homes and _makes_module(each.file, each.node)
        for each in made
    )


def _makes_module(ctx: Context, node: cst.Call) -> bool:
    """By torch, or by a class of the program."""
    owner, _, name = (ctx.dotted(node.func) or "").rpartition(".")
    if owner:
        return owner == "torch.nn" and name[:1].isupper() and not BARE.search(name)
    classes = [o for o in ctx.origins(node.func) if isinstance(o.node, cst.ClassDef)]
    return any(_is_module_class(o.file, cst.ensure_type(o.node, cst.ClassDef)) for o in classes)


def _is_module_class(ctx: Context, node: cst.ClassDef) -> bool:
    return any(ctx.dotted(base.value) == "torch.nn.Module" for base in node.bases)


def _is_of_model(ctx: Context, node: cst.BaseExpression, surely: bool = False) -> bool:
    """Whether something belongs to a sharded model, for those who hold it.

    In its own methods a model was not wrapped under FSDP1 either, and what they put into it belonged to no unit.
    """
    while not is_self(node, ctx):
        held = ctx.kinds(node)
        if ModelKind.FSDP in held:
            return not surely or ModelKind.UNKNOWN not in held
        if not isinstance(node, (cst.Attribute, cst.Subscript)):
            return False
        node = node.value
    return False


def _is_in_model(ctx: Context, node: cst.BaseExpression, use: cst.BaseExpression) -> bool:
    """The same, or of the module that was wrapped, which goes on under its own name.

    Where `use`, which is put in, is not made in that line, it may be another object of that name that it is put into.
    """
    root = indexed_front(node)
    is_inner = isinstance(root, cst.Name) and isinstance(use, cst.Call) and not is_self(root, ctx)
    is_made = isinstance(use, cst.Call) and _makes_module(ctx, use)
    return _is_of_model(ctx, node, surely=not is_made) or (
        is_inner and may_be_inner_module(root, cst.ensure_type(use, cst.Call), ctx)
    )


# Methods that tie the weights of the module they are called on: `self.embed.weight = self.head.weight`.

_OF_TRANSFORMERS = "tie_weights"


def ties_weights(call: cst.Call, ctx: Context) -> bool:
    """Whether a call of a module's method runs one that ties weights: of any class, since the module's is not told."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value in KEEP_PARAMETERS:
        return False
    name = call.func.attr.value
    methods = [(at, each) for at in ctx.files(name) for each in at.nodes(cst.FunctionDef) if each.name.value == name]
    own = [(at, each) for at, each in methods if enclosing(at, each, cst.ClassDef) is not None]
    return any(_ties_in(at, each, set()) for at, each in own) or (name == _OF_TRANSFORMERS and not own)


def tying_names(ctx: Context) -> frozenset[str]:
    """The names of all methods that can tie weights, in whatever class: few calls have one of them."""
    found: set[str] = {_OF_TRANSFORMERS}
    asked = [
        (where, node)
        for where, node in ctx.attributes("weight")
        if isinstance(where.parent(node), cst.AssignTarget) and _is_own_weight(where, node)
    ]
    for where, node in asked:  # grows
        method = enclosing(where, node, cst.FunctionDef)
        if method is not None and method.name.value not in found:
            found.add(method.name.value)
            asked += [each for each in ctx.attributes(method.name.value) if is_self(each[1].value, each[0])]
    return frozenset(found)


def is_weight(node: cst.BaseExpression) -> bool:
    """`module.weight`."""
    return isinstance(node, cst.Attribute) and node.attr.value == "weight"


def _ties_in(ctx: Context, method: cst.FunctionDef, seen: set[cst.FunctionDef]) -> bool:
    if method in seen:
        return False
    seen.add(method)
    for node in ctx.inside(method):
        if isinstance(node, cst.Assign) and _is_own_weight(ctx, node.targets[0].target):
            if _is_own_weight(ctx, node.value):
                return True
    return any(_ties_in(ctx, each, seen) for each in _own_methods_called(ctx, method))


def _is_own_weight(ctx: Context, node: cst.BaseExpression) -> bool:
    return is_weight(node) and is_self(indexed_front(node), ctx)


def _own_methods_called(ctx: Context, method: cst.FunctionDef) -> Iterator[cst.FunctionDef]:
    owner = enclosing(ctx, method, cst.ClassDef)
    called = {
        node.func.attr.value
        for node in ctx.inside(method)
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and is_self(node.func.value, ctx)
    }
    for each in owner.body.body if owner is not None else ():
        if isinstance(each, cst.FunctionDef) and each.name.value in called:
            yield each


CHECK = Check(
    CODE,
    "write-after-sharding",
    __doc__,
    words=(
        "init",
        "weight",
        "data",
        "nn",
        "forward",
        "rand_like",
        "randint_like",
        "randn_like",
        *sorted(_INITIALISERS | _DRAWS),
    ),
    find=find,
)
