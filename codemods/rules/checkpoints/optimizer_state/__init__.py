"""**What it does.** Rewrites FSDP1's static methods that read or load an optimizer's state into
`get_optimizer_state_dict` and `set_optimizer_state_dict` of torch; the latter stands for the `load_state_dict` behind
it as well.

**Why.** They read flat parameters, which an FSDP2 model does not have.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(net, optimizer, path):
    model = FSDP(net, use_orig_params=True)
    state = FSDP.full_optim_state_dict(model, optimizer)
    if torch.distributed.get_rank() == 0:
        torch.save(state, path)


def resume(net, optimizer, path):
    model = FSDP(net, use_orig_params=True)
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, torch.load(path)))
```

## Use instead

```python
import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard


def save(net, optimizer, path):
    model = fully_shard(net)
    state = get_optimizer_state_dict(
        model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if torch.distributed.get_rank() == 0:
        torch.save(state, path)


def resume(net, optimizer, path):
    model = fully_shard(net)
    set_optimizer_state_dict(
        model,
        optimizer,
        torch.load(path),
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False),
    )
```

## Fix safety

Same keys, dtypes and values, and the same training after a file that FSDP1 saved (torch 2.13, 2 and 4 ranks); the order
of the names is another one. `strict=False` takes parameters without a state, as FSDP1 did; torch before 2.10 raises
`KeyError` for one that never had a gradient, of which FSDP2 saves no state. Where the program changes the result before
it loads it, or loads it below a condition, the optimizer is loaded at once, and the program goes on with its own state
dict: `state = optimizer.state_dict()`; a load right below the `if` is put into its `else`. Functions of the support
module stand around torch's where those would give something else:

- Torch makes an optimizer that has not stepped yet take a step, and that one counts (`read_optimizer_state`).
- FSDP1 without `use_orig_params=True` saved one `step` for a unit, which torch takes over as it is (`with_own_steps`).
- Where only rank 0 has the state, torch leaves a scheduler's `initial_lr` out on the others (`load_optimizer_state`).
- Torch takes `_orig_mod.` of a compiled model out of the names (`with_compiled_names`, `without_compiled_names`).
- Torch gives a full state on the CPU to the first of all ranks only: another group's, or one that every rank goes on
  with, is read by `full_optim_state_dict`.
- What is loaded is handed on, or only run time knows whether it is whole or sharded: `optim_state_dict_to_load` loads
  it, and returns the optimizer's own state dict. So it does for an optimizer that may have nothing to load, with which
  torch's function fails.

A state that is made ready, and that nothing reads then, was never loaded by FSDP1. It is loaded where the call or the
function around has the optimizer, and that is for review, since the run goes on from it now; where not, the call goes,
and the run begins with a fresh optimizer, as it did.

A model over a process group of its own loads what each of its ranks has (`full_state_dict=True` alone): the first of
all ranks would give every group the values of its own. A file whose keys are parameter ids raises. Where each rank
loads in its turn (`if turn == rank:`) the call is reported:
FSDP1 needed no other rank for it.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Fix, Level, NotStatic, Rule, finding, left, rewritten
from codemods.plan import PlannedContext
from codemods.reading.edits.layout import removal
from codemods.reading.models.plain_objects import is_plain_object
from codemods.reading.optimizers.calls import PREFIX, arguments_of, function_of
from codemods.reading.optimizers.loading import is_unused
from codemods.reading.optimizers.reading import READERS
from codemods.reading.processes.one_rank import is_in_turn, is_on_one_rank
from codemods.reading.wrappers.foreign_context import foreign_context
from codemods.tables.leftovers import LEFTOVERS
from codemods.tables.state_dicts import OPTIMIZER_CALLS, READ_ALONE

from .by_name import Written, as_function
from .loading import load
from .reading import read

CODE = "FM303"


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    name = function_of(call, ctx)
    if name is None:
        return None
    is_lost = name not in READERS and is_unused(call, ctx)
    try:
        written = _rewrite(call, name, ctx)
    except NotStatic as undecided:
        if ctx.fsdp1(call.func) is None:
            return None  # an attribute of the wrapper, which is named as such
        line = ctx.parent(ctx.parent(call) or call)
        if is_lost and line is not None:
            told = finding(CODE, Level.REVIEW, ctx, call, f"{ctx.code(call.func)} goes{_LOST}", _UNLOADED)
            return Fix([removal(ctx, line)], [told])
        row = LEFTOVERS[PREFIX + name]
        return left(CODE, Level.MANUAL, ctx, call, f"{row.message}: {undecided}", row.hint)
    message = f"{ctx.code(call.func)} becomes {written.becomes}"
    if is_lost:
        told = finding(CODE, Level.REVIEW, ctx, call, message + _LOST, _FRESH)
        return Fix(written.edits, [told], written.imports)
    return rewritten(CODE, ctx, call, written.edits, message, written.imports)


_LOST = "; what it returned is not used, so that FSDP1 never loaded the state"
_FRESH = "take it away with what reads the file, where the run is to go on with a fresh optimizer"
_UNLOADED = "where the run is to go on from it, load it with set_optimizer_state_dict(model, optimizer, state)"


def _rewrite(call: cst.Call, name: str, ctx: PlannedContext) -> Written:
    given = arguments_of(call, name, ctx)
    if "optim" in given and is_plain_object(ctx, given["optim"].value):
        raise NotStatic("torch takes a torch.optim.Optimizer, and this is an object of the program's own around one")
    foreign = foreign_context(call, ctx.code(given["model"].value), ctx) if "model" in given else None
    if foreign is not None:
        raise NotStatic(f"{ctx.code(foreign)} is given the model, and may decide what its state is")
    if name in READERS:
        written = read(call, name, given, ctx)
        if written.gathers and is_on_one_rank(call, ctx):
            raise NotStatic(READ_ALONE)
        return written
    if name == "rekey_optim_state_dict":
        return as_function(call, name, given, ctx)
    if is_in_turn(call, ctx):
        raise NotStatic("the ranks load one after the other here, and on FSDP2 all have to take part at once")
    return load(call, name, given, ctx)


RULE = Rule(CODE, "optimizer-state-method", __doc__, nodes=(cst.Call,), fix=fix, methods=tuple(sorted(OPTIMIZER_CALLS)))
