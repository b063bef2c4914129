"""**What it does.** Finds parameters of a wrapped model, or copies of them, that come to a `torch.save` as they are: in
a dict over `named_parameters()`, in what an average keeps (`self.shadow[name] = param.clone()`), or one of a library.

**Why.** Under FSDP1 they were this rank's pieces of flat parameters, and whole with NO_SHARD alone. Under FSDP2 they
are DTensors: the file has this rank's shards, and a script without `torch.distributed` cannot read it (torch 2.13).
Neither says a word. A state dict of the model itself is gathered by `rewrite`; what a program collects is not.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, path):
    model = FSDP(net, use_orig_params=True)
    trained = {name: p.cpu() for name, p in model.named_parameters() if p.requires_grad}
    torch.save(trained, path)
```

## Use instead

```python
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def save(net, path):
    model = fully_shard(net)
    trained = {name: p.full_tensor().cpu() for name, p in model.named_parameters() if p.requires_grad}
    if dist.get_rank() == 0:
        torch.save(trained, path)
```

## Fix safety

Nothing is changed: who reads such files, and what they expect of them, is not seen. A file whose name is made of the
rank is for review: each rank finds its own part again, on as many ranks.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.full_tensor
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.reading.code.shapes import called_on, is_call_to
from codemods.reading.optimizers.makers import is_optimizer
from codemods.reading.parameters.of_model import READERS, gives_parameters, readings
from codemods.reading.state_dicts.saves import names_a_rank, saves_of

CODE = "FM452"

_COPIES = frozenset({"bfloat16", "clone", "contiguous", "cpu", "cuda", "data", "detach", "float", "half", "to"})
"""Methods and attributes of a DTensor that give another of the same shards."""
_SAVED = "a model's parameters are saved as they are: this rank's part of each, flat in FSDP1 and DTensors in FSDP2"
_HINT = "let all ranks take p.full_tensor() of what is saved, and one of them save that"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each thing that parameters are kept in for a file."""
    told = set[tuple[cst.CSTNode, str]]()
    for reading in readings(ctx):
        for node in (node for param in reading.seen(ctx) for node in _kept(param, ctx)):
            place = ctx.scope(node), ctx.code(node)
            saves = [] if place in told else list(_saves(node, ctx))
            told.add(place)
            if saves:
                yield finding(CODE, _level(saves), ctx, reading.node, _SAVED, _HINT)
    for call in _averages(ctx):
        saves = list(saves_of(call, ctx))
        if saves:
            yield finding(CODE, _level(saves), ctx, call, _SAVED, _HINT)


def _level(saves: Sequence[tuple[Context, cst.Call]]) -> Level:
    return Level.REVIEW if all(names_a_rank(save.args[1:], where) for where, save in saves) else Level.MANUAL


def _averages(ctx: Context) -> Iterator[cst.Call]:
    """`ema.state_dict()` of a library's average that is made of a wrapped model's parameters."""
    for call in ctx.nodes(cst.Call):
        average = called_on(call, "state_dict")
        for origin in ctx.origins(average) if average is not None and not call.args else ():
            made, where = origin.node, origin.file
            library = where.dotted(made.func) if isinstance(made, cst.Call) else None
            if not isinstance(made, cst.Call) or library is None or is_optimizer(where, made):
                continue
            if library.startswith("torch.") or not library.rpartition(".")[2][:1].isupper():
                continue  # torch has no such average; and what a function makes of them is an optimizer, or not known
            if any(_reads_parameters(argument.value, where) for argument in made.args):
                yield call
                break


def _reads_parameters(given: cst.BaseExpression, ctx: Context) -> bool:
    """`model.parameters()` of a wrapped model, also in a variable of this function: not what others hand in."""
    bound = ctx.bound(given) if isinstance(given, cst.Name) else None
    values = [given, *(value for _, value in bound or ())]
    named = [value for value in values if called_on(value, *READERS) is not None or is_call_to(value, "list")]
    return any(gives_parameters(value, ctx) for value in named)


def _kept(param: cst.BaseExpression, ctx: Context) -> Iterator[cst.CSTNode]:
    """What a parameter, or a copy of it, is put into."""
    value: cst.CSTNode = param
    holder = ctx.parent(value)
    while isinstance(holder, (cst.Attribute, cst.Call)):
        if isinstance(holder, cst.Attribute) and holder.attr.value not in _COPIES:
            return
        value, holder = holder, ctx.parent(holder)
    if isinstance(holder, cst.DictComp) and holder.value is value:
        yield holder
    elif isinstance(holder, cst.Assign) and len(holder.targets) == 1:
        target = holder.targets[0].target
        if isinstance(target, cst.Subscript) and holder.value is value:
            yield target.value


def _saves(kept: cst.CSTNode, ctx: Context) -> Iterator[tuple[Context, cst.Call]]:
    """Where it is saved: as it is made, or where the name or attribute is read that has it."""
    target = kept
    if isinstance(kept, cst.DictComp):
        yield from saves_of(kept, ctx)
        holder = ctx.parent(kept)
        target = holder.targets[0].target if isinstance(holder, cst.Assign) else kept
    if isinstance(target, cst.Attribute):
        made = {origin.node for origin in ctx.origins(target)}
        for where, read in ctx.attributes(target.attr.value):
            if not isinstance(where.parent(read), (cst.AssignTarget, cst.Subscript)):
                if any(origin.node in made for origin in where.origins(read)):
                    yield from saves_of(read, where)
    elif isinstance(target, cst.Name) and target is kept:
        named = (n for n in ctx.inside(ctx.scope(target)) if isinstance(n, cst.Name) and n.value == target.value)
        for use in named:
            yield from saves_of(use, ctx)


CHECK = Check(CODE, "saved-parameters", __doc__, words=(*READERS, "state_dict"), find=find)
