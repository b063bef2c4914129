"""**What it does.** With `--async-checkpoint`, `torch.distributed.checkpoint.save` becomes `async_save`: training waits
for the copy to the CPU's memory only, and goes on while the copy is written.

**Why.** Writing a checkpoint takes minutes where the storage is slow, and no rank trains meanwhile.

What has to be waited for, each measured on torch 2.13 with 2 gloo ranks:

* Nothing, before the optimizer steps: when `async_save` returns, parameters, optimizer states and lists in the state
  dict are copied. Steps behind it leave no trace in the checkpoint, on the CPU too.
* The last checkpoint, before the next one is saved, and before one is loaded: two at a time mix up their collectives,
  which hangs, or aborts in gloo; a checkpoint that is still written has no `.metadata`, and its load raises.
* The last checkpoint, before `destroy_process_group()`: `Group … is not registered` is raised in the thread, where
  nobody hears it, and the checkpoint stays without its `.metadata`. A program that just ends is waited for by Python.
* `result()` at all: what goes wrong in writing, as with a full disk, is raised there and nowhere else.

The thread has a gloo group of its own. Over the group of training, its collectives mix with those of training, which
aborts or hangs; and a group of NCCL alone is refused (`A CPU backend must be enabled for async save`).

## Example

```python
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard


def train(model, optimizer, batches):
    fully_shard(model)
    for step, batch in enumerate(batches):
        model(batch).sum().backward()
        optimizer.step()
        if step % 100 == 0:
            dcp.save({"model": model.state_dict()}, checkpoint_id=f"step{step}")
    dist.destroy_process_group()
```

## Use instead

```python
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard


def train(model, optimizer, batches):
    fully_shard(model)
    saving, saving_group = None, dist.new_group(backend="gloo")
    for step, batch in enumerate(batches):
        model(batch).sum().backward()
        optimizer.step()
        if step % 100 == 0:
            if saving is not None:
                saving.result()
            saving = dcp.async_save(
                {"model": model.state_dict()},
                checkpoint_id=f"step{step}",
                process_group=saving_group,
            )
    if saving is not None:
        saving.result()
    dist.destroy_process_group()
```

## Fix safety

The same files with the same values: a program that resumes from them goes on with the same losses (2 ranks). Each rank
holds a copy of what it saves in the CPU's memory until it is written. Where a function saves that a loop elsewhere
calls, two functions keep what is being written (`save_in_background`, `wait_for_checkpoint`), and what destroys the
process group or loads waits first. `torch.save` of a full state dict stays as it is, and is said: `async_save` writes
a folder. So is a save that cannot wait: one with files moved or removed below it in its function, whose errors are
caught around it, that has a process group of its own, that one rank makes alone (`no_dist`), or behind which nothing
trains.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict_saver.async_save
- https://docs.pytorch.org/tutorials/recipes/distributed_async_checkpoint_recipe.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Fix, Upgrade
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.words import last_name
from codemods.reading.own_fsdp2.shardings import argument, cannot, shardings

from .saving import Save, Saving, last_place
from .waiting import FUNCTION, in_functions, in_variables

CODE = "FM605"

_BY_HAND = "call async_save by hand, and result() of what it returns before anything needs the checkpoint"


def edit(ctx: Context, choice: str) -> Iterator[Fix]:
    """One fix for each save; none where the program saves asynchronously."""
    if ctx.mentions("async_save", FUNCTION):
        return
    program = Saving(ctx)
    if not program.saves:
        yield from _nothing_to_save(ctx)
    for save in program.saves:
        if save.file.path != ctx.path:
            continue
        why = obstacle(program, save)
        if why:
            yield cannot(CODE, ctx, save.call, why, _BY_HAND)
        else:
            yield in_variables(program, save, CODE) if program.is_local else in_functions(program, save, CODE)


def _nothing_to_save(ctx: Context) -> Iterator[Fix]:
    """What is said of a program without a distributed checkpoint: once, where it first saves, else where it shards."""
    saved = [(file, call) for file in ctx.files("save") for call in file.nodes(cst.Call) if _is_torch_save(file, call)]
    whole = [each for each in saved if _has_state(*each)] or saved
    sharded = [(file, each.root) for file in ctx.files("fully_shard") for each in shardings(file)]
    why, hint = "the program saves no checkpoint with torch.distributed.checkpoint", _BY_HAND
    if whole:
        why = "torch.save writes one file from one rank, and async_save a folder that all ranks write"
        hint = "save sharded state dicts with torch.distributed.checkpoint.save, and run again"
    for file, call in (whole or sharded)[:1]:
        if file.path == ctx.path:
            yield cannot(CODE, ctx, call, why, hint)


def _has_state(file: Context, call: cst.Call) -> bool:
    """Whether the function of a save reads the state of a model."""
    return any("state_dict" in last_name(each.func) for each in file.calls(file.scope(call)))


def _is_torch_save(file: Context, call: cst.Call) -> bool:
    return file.dotted(call.func) == "torch.save"


_GIVEN = {"process_group": "it saves over a group that it is given", "no_dist": "one rank saves it by itself"}
_MOVES = frozenset({"rmtree", "remove", "unlink", "rename", "replace", "move", "symlink", "copytree"})
_MOVING_METHODS = ("unlink", "symlink_to", "rmdir")


def obstacle(program: Saving, save: Save) -> str:
    """Why a save cannot be made asynchronous, in words; empty where it can."""
    file, call = save.file, save.call
    if not program.is_repeated:
        return "nothing trains behind it: it is made once, in no loop"
    for name, why in _GIVEN.items():
        if argument(call, name) is not None:
            return why
    if any(each.star == "**" for each in call.args):
        return "what it is called with is not seen"
    if not isinstance(file.parent(call), cst.Expr) or save.frame.statement is None:
        return "it is a part of a longer line"
    around = enclosing(file, call, cst.Try)
    if around is not None and around.handlers and file.scope(around) is file.scope(call):
        return f"errors in saving are caught around it (line {file.position(around)[0]})"
    for other in file.calls(file.scope(call)):
        if file.span(other)[0] > file.span(call)[0] and _moves_files(file, other):
            return f"line {file.position(other)[0]} moves or removes files, which may not be written yet"
    if not program.is_local and not program.ends and any(last_place(way) is None for way in save.ways):
        return "neither a loop in which it is called nor the end of the program is seen"
    return ""


def _moves_files(file: Context, call: cst.Call) -> bool:
    if isinstance(call.func, cst.Attribute) and call.func.attr.value in _MOVING_METHODS:
        return True
    module, _, name = (file.dotted(call.func) or "").rpartition(".")
    return module in ("os", "shutil") and name in _MOVES


UPGRADE = Upgrade(CODE, "async-checkpoint", __doc__, words=("fully_shard", "save"), edit=edit, is_about_sharding=False)
