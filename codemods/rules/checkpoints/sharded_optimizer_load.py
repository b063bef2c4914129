"""**What it does.** Rewrites `load_sharded_optimizer_state_dict` of `torch.distributed.checkpoint` into a function of
the support module that reads the state as the file holds it.

**Why.** Torch's function returns ShardedTensors, which an FSDP2 optimizer cannot take. A load into what
`get_optimizer_state_dict` gives of a fresh optimizer fills only the keys that are there: the `initial_lr` of a
scheduler stays in the file, and the next scheduler takes the decayed rate for it (torch 2.13).

## Example

```python
import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


def resume(net, optimizer, path):
    model = FSDP(net)
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        saved = load_sharded_optimizer_state_dict(model.state_dict(), "optim", dist_cp.FileSystemReader(path))
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, saved["optim"]))
```

## Use instead

```python
import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard

from fsdp2_support import read_sharded


def resume(net, optimizer, path):
    model = fully_shard(net)
    saved = read_sharded(get_model_state_dict(model), "optim", dist_cp.FileSystemReader(path))
    set_optimizer_state_dict(
        model, optimizer, saved["optim"], options=StateDictOptions(strict=False)
    )
```

## Fix safety

Reads what FSDP1 saved, with and without a device mesh and `use_orig_params`, on the same and on another number of
ranks, and trains on as FSDP1 did (torch 2.13, from 2 ranks to 2 and 4). All keys of the groups and of the parameters'
states come from the file.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import SUPPORT, Context, Fix, Import, Level, Rule, finding, rewritten
from codemods.reading.code.shapes import keywords
from codemods.reading.edits.call_layout import renaming
from codemods.tables.state_dicts import DCP_READERS

CODE = "FM305"

_TAKEN = frozenset({"model_state_dict", "optimizer_key", "storage_reader", "planner"})
_UNKNOWN = "load_sharded_optimizer_state_dict is given an argument that torch's does not take"
_HINT = "take it away; a function of a changed torch has to be moved by hand"


def fix(call: cst.Call, ctx: Context) -> Fix | None:
    if ctx.dotted(call.func) not in DCP_READERS:
        return None
    if not keywords(call.args).keys() <= _TAKEN:
        return Fix(findings=[finding(CODE, Level.MANUAL, ctx, call, _UNKNOWN, _HINT)])
    item = ctx.named(Import(SUPPORT, "read_sharded"), call)
    message = f"load_sharded_optimizer_state_dict becomes {item.name}, a support function"
    return rewritten(CODE, ctx, call, renaming(ctx, call, item.local), message, [item])


RULE = Rule(CODE, "sharded-optimizer-load", __doc__, nodes=(cst.Call,), fix=fix)
