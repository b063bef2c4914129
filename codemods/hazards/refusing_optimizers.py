"""**What it does.** Finds optimizers that raise on DTensor parameters, or that compute with whole tensors where
FSDP1 handed them flat shards.

**Why.** `Adafactor`, `Rprop` and `Muon` of torch raise on the DTensors of FSDP2 (torch 2.13); the first two ran
under FSDP1, on flat shards. `LBFGS` makes one vector of all parameters: it raises where a size is not divided by the
ranks, and trains otherwise where all are. The kernels of bitsandbytes and apex take plain tensors. LAMB, LARS and
Shampoo use norms and shapes of whole parameters: on FSDP1's flat shards they computed something else. An
optimizer of the program's own that sends shards from rank to rank is for FSDP1's.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net, use_orig_params=True)
    return torch.optim.Adafactor(model.parameters())
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net, use_orig_params=True)
    return torch.optim.AdamW(model.parameters())
```

## Fix safety

Nothing is changed: it is reported, for you to decide. SGD, ASGD, Adam, AdamW, NAdam, RAdam, Adamax, RMSprop,
Adadelta and Adagrad give the same losses as under FSDP1.

## References

- https://docs.pytorch.org/docs/stable/optim.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, Origin, finding
from codemods.plan import PlannedContext
from codemods.reading.code.shapes import called_on
from codemods.reading.models.parts import wrapped_around
from codemods.reading.parameters.of_model import READERS
from codemods.reading.parameters.stepped import own_optimizers

CODE = "FM407"

_REFUSES = frozenset({"Adafactor", "LBFGS", "Muon", "Rprop"})
_WHOLE = frozenset({"lamb", "lars", "shampoo", "fusedlamb", "distributedshampoo", "lans"})
_PARAMETER = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})
_KERNELS = ("bitsandbytes.", "apex.")
_SENDS = frozenset(f"torch.distributed.{name}" for name in ("send", "isend", "recv", "irecv"))


def find(ctx: PlannedContext) -> Iterator[Finding]:
    """One finding for each optimizer."""
    early = ctx.plan.built_before
    for call in ctx.nodes(cst.Call):
        dotted = ctx.dotted(call.func) or ""
        name = dotted.rsplit(".", 1)[-1]
        if dotted.startswith(("torch.optim.", "transformers.")) and name in _REFUSES:
            message = "an optimizer for plain tensors: on DTensor parameters it raises, or trains otherwise"
        elif dotted.startswith(_KERNELS) and "optim" in dotted and name[:1].isupper():
            message = f"the kernels of {dotted.split('.')[0]} take plain tensors, and FSDP2's parameters are DTensors"
        elif name.lower() in _WHOLE:
            message = f"{name} computes with whole parameters, where FSDP1 gave it flat shards"
        else:
            continue
        if call not in early and _holds_others(call, ctx):
            continue
        hint = "use an element-wise optimizer of torch, or one that supports DTensor, and compare the losses"
        yield finding(CODE, Level.MANUAL, ctx, call, message, hint)
    for owner in own_optimizers(ctx):
        sends = [node for node in ctx.inside(owner) if isinstance(node, cst.Call) and ctx.dotted(node.func) in _SENDS]
        if sends:
            message = "this optimizer takes FSDP1's flat shards from rank to rank, and FSDP2's parameters are DTensors"
            hint = "work on param.to_local() and param.grad.to_local(), flattened, and count sizes by them"
            yield finding(CODE, Level.MANUAL, ctx, sends[0], message, hint)


def _holds_others(call: cst.Call, ctx: Context) -> bool:
    """Whether an optimizer is seen to hold nothing of a wrapped model: parameters made there, or another model's.

    What Megatron makes groups of are the models that Megatron shards, in a list.
    """
    given = next((a.value for a in call.args if a.keyword is None or a.keyword.value == "params"), None)
    if isinstance(given, cst.Name) and _are_megatrons(ctx.origins(given)):
        return True
    module = called_on(given, *READERS)
    if module is not None:
        return _is_another(module, ctx)
    if not isinstance(given, (cst.List, cst.Tuple)):
        return False
    return all(_is_made_alone(element.value, ctx) or _is_of_another(element.value, ctx) for element in given.elements)


def _is_another(module: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a module is seen to be no wrapped one, nor a part of one."""
    return ModelKind.UNKNOWN not in ctx.kinds(module) and wrapped_around(module, ctx) is None


def _is_of_another(value: cst.BaseExpression, ctx: Context) -> bool:
    """`self.bias` of a class whose objects nothing wraps."""
    return isinstance(value, cst.Attribute) and _is_another(value.value, ctx)


def _are_megatrons(groups: Sequence[Origin]) -> bool:
    made = [(o.file.dotted(o.node.func) or "") if isinstance(o.node, cst.Call) else "" for o in groups]
    return bool(made) and all(each.startswith("megatron.") for each in made)


def _is_made_alone(value: cst.BaseExpression, ctx: Context) -> bool:
    """`nn.Parameter(…)` of a variable, which is no attribute of a module there."""
    made = [(o.file, o.node) for o in ctx.origins(value)] if isinstance(value, cst.Name) else []
    calls = [where.dotted(node.func) for where, node in made if isinstance(node, cst.Call)]
    return bool(calls) and len(calls) == len(made) and set(calls) <= _PARAMETER


CHECK = Check(
    CODE,
    "optimizer-and-dtensors",
    __doc__,
    words=(
        "Adafactor",
        "LBFGS",
        "Muon",
        "Rprop",
        "bitsandbytes",
        "bnb",
        "apex",
        "torch_optimizer",
        "LAMB",
        "Lamb",
        "LARS",
        "Shampoo",
        "Optimizer",
        "step",
    ),
    find=find,
)
