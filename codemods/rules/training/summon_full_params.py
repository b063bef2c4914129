"""**What it does.** Rewrites `FSDP.summon_full_params(model, ...)` into `summon_full_params` of the support module.

**Why.** On an FSDP2 model FSDP1's context does nothing, and says nothing: the parameters stay sharded, and what is
written to a gathered copy is lost.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sample(net, prompt):
    model = FSDP(net)
    with FSDP.summon_full_params(model, writeback=False, recurse=False):
        return model.generate(prompt)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard

from fsdp2_support import summon_full_params


def sample(net, prompt):
    model = fully_shard(net)
    with summon_full_params(model, writeback=False, recurse=False):
        return model.generate(prompt)
```

## Fix safety

The support module's context reads and writes whole parameters and gradients and writes back as FSDP1 did, the model may
be called in it, and `model.state_dict()` gives whole tensors there (torch 2.13, 2 ranks). A `load_state_dict` inside of
it is reported and raises. Where the context is only there for `generate`, and no parameter of the root is used outside
of a forward, an FSDP2 model needs no context at all: it gathers by itself.

## References

- https://github.com/pytorch/pytorch/issues/100069
"""

from __future__ import annotations

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Fix, Import, Level, ModelKind, Raise, Rule, finding
from codemods.tables.names import SUMMON

CODE = "FM203"

_METHOD = SUMMON.rsplit(".")[-1]
_LOADS = "load_state_dict inside of summon_full_params fails on an FSDP2 model"
_HINT = "load it in front of the context, with set_model_state_dict of torch.distributed.checkpoint.state_dict"


def match(node: cst.CSTNode, ctx: Context) -> cst.Attribute | cst.Name | None:
    """`FSDP.summon_full_params`, and `model.summon_full_params`, which is the same static method."""
    if not isinstance(node, (cst.Attribute, cst.Name)):
        return None
    if ctx.fsdp1(node) == SUMMON:
        return node if not isinstance(ctx.parent(node), cst.AssignTarget) else None
    if not isinstance(node, cst.Attribute) or node.attr.value != _METHOD or ctx.dotted(node) is not None:
        return None
    return node if ctx.kinds(node.value) & {ModelKind.FSDP, ModelKind.UNKNOWN} else None


def edit(found: cst.Attribute | cst.Name, ctx: Context) -> Fix:
    call = ctx.parent(found)
    if isinstance(call, cst.Call) and _loads(call, ctx):
        stopped = Raise(found, CODE, _LOADS, call.args[0].value)
        return Fix(findings=[finding(CODE, Level.MANUAL, ctx, found, _LOADS, _HINT)], raises=[stopped])
    item = ctx.named(Import(SUPPORT, _METHOD), found)
    message = f"{_METHOD} becomes {_METHOD} of the support module"
    return Fix([Edit(*ctx.bare_span(found), item.local)], [finding(CODE, Level.REWRITTEN, ctx, found, message)], [item])


def _loads(call: cst.Call, ctx: Context) -> bool:
    """Whether the block that the call opens loads a state dict into the same model."""
    item = ctx.parent(call)
    block = ctx.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(block, cst.With) or not call.args:
        return False
    model = ctx.code(call.args[0].value)
    loads = {f"{model}.load_state_dict", f"{model}.module.load_state_dict"}
    return any(isinstance(node, cst.Call) and ctx.code(node.func) in loads for node in ctx.inside(block.body))


RULE: Rule[cst.Attribute | cst.Name] = Rule(
    CODE, "summon-full-params", __doc__, nodes=(cst.Attribute, cst.Name), methods=(_METHOD,), match=match, edit=edit
)
