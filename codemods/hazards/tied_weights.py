"""**What it does.** Finds tied weights in a program whose policy can put their owners into two units.

**Why.** FSDP1 with use_orig_params=False silently untied them (the loss differed by 0.147 from a tied model), and
so does FSDP2 up to torch 2.11; later versions raise at the first forward. Both owners in one unit stay tied.

## Example

```python
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def build(net):
    net.head.weight = net.embed.weight
    return FSDP(net, auto_wrap_policy=ModuleWrapPolicy({nn.Embedding, nn.Linear}))
```

## Use instead

```python
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def build(net, Block):
    net.head.weight = net.embed.weight
    return FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}))
```

## Fix safety

Nothing is changed: it is reported, for you to decide. `fully_shard([model.embed, model.head])` makes one unit of
both.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.plan import PlannedContext
from codemods.reading.code.words import last_name
from codemods.reading.models.class_layout import sharded_classes
from codemods.reading.wraps.manual import argument_name, is_constructor

CODE = "FM409"

_MESSAGE = "weights are tied, and the policy can put their owners into two units, which unties them or raises"
_HINT = "shard both owners with one call, fully_shard([embedding, head]), before the others"

_PICKS = ("Embedding", "Linear", "size_based_auto_wrap_policy", "default_auto_wrap_policy", "always_wrap_policy")
_IGNORED = ("ignored_modules", "ignored_states")
_CASTS = ("typing.cast", "typing_extensions.cast")


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each constructor call."""
    for call in ctx.nodes(cst.Call):
        if not is_constructor(ctx, call) and not ctx.plan.is_drafted(call):
            continue
        given = [a.value for a in call.args if argument_name(a) == "auto_wrap_policy"]
        texts = [o.file.code(o.node) for value in given for o in ctx.origins(value) if o.node is not None]
        if not any(word in text for text in texts for word in _PICKS):
            continue
        ignored = _ignored_names(ctx, call)
        scopes = [(ctx, ctx.top), *sharded_classes(ctx, call)]
        if any(_ties_anything(where, scope, ignored) for where, scope in scopes):
            yield finding(CODE, Level.MANUAL, ctx, call, _MESSAGE, _HINT)


def _ignored_names(ctx: Context, call: cst.Call) -> frozenset[str]:
    """The attributes whose modules the call ignores, `{net.embed}`: a weight that one of them has is in no unit."""
    given = [a.value for a in call.args if argument_name(a) in _IGNORED]
    made = [origin for value in given for origin in ctx.origins(value)]
    names = [
        {_attribute(origin.file, element.value) for element in origin.node.elements}
        for origin in made
        if isinstance(origin.node, (cst.List, cst.Set, cst.Tuple))
    ]
    return frozenset.intersection(*map(frozenset, names)) - {""} if names and len(names) == len(made) else frozenset()


def _attribute(ctx: Context, value: cst.BaseExpression) -> str:
    """The name of the attribute that a value is, `cast(nn.Module, net.embed)` too."""
    if isinstance(value, cst.Call) and len(value.args) == 2 and ctx.dotted(value.func) in _CASTS:
        value = value.args[1].value
    return value.attr.value if isinstance(value, cst.Attribute) else ""


def _ties_anything(ctx: Context, scope: cst.CSTNode, ignored: frozenset[str]) -> bool:
    """Whether a file, or a class of the model, ties weights: by `tie_weights`, or by `head.weight = embed.weight`."""
    nodes: list[cst.CSTNode] = [node for node in ctx.nodes(cst.Assign) if _ties(node, ignored)]
    nodes += [node for node in ctx.nodes(cst.Attribute) if node.attr.value == "tie_weights"]
    nodes += [node for node in ctx.nodes(cst.FunctionDef) if node.name.value == "tie_weights"]
    return any(outer is scope for node in nodes for outer in ctx.ancestors(node))


def _ties(node: cst.Assign, ignored: frozenset[str]) -> bool:
    """`head.weight = embed.weight`, of which neither module is ignored."""
    sides = (node.targets[0].target, node.value)
    owners = [n.value for n in sides if isinstance(n, cst.Attribute) and n.attr.value == "weight"]
    return len(owners) == 2 and not any(last_name(owner) in ignored for owner in owners)


CHECK = Check(
    CODE, "tied-weights-in-two-units", __doc__, words=("auto_wrap_policy", "fsdp_auto_wrap_policy"), find=find
)
