"""**What it does.** Rewrites `save_state_dict` and `load_state_dict` of `torch.distributed.checkpoint` into `save` and
`load`.

**Why.** They are deprecated, and go with FSDP1.

## Example

```python
import torch.distributed.checkpoint as dist_cp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


def save(net, path):
    model = FSDP(net)
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = {"model": model.state_dict()}
    dist_cp.save_state_dict(state, dist_cp.FileSystemWriter(path))
```

## Use instead

```python
import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard


def save(net, path):
    model = fully_shard(net)
    state = {"model": get_model_state_dict(model)}
    dist_cp.save(state, storage_writer=dist_cp.FileSystemWriter(path))
```

## Fix safety

The same files. Objects in the dictionary that have a `state_dict` method of their own are saved by it. A call that says
`no_dist=True` or names another coordinator stays: the new functions did not always have that.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, Fix, Rule, rewritten
from codemods.reading.code.arguments import by_parameter
from codemods.reading.edits.call_layout import argument_removal, renaming
from codemods.reading.edits.dcp_import import PACKAGES, dcp_import

CODE = "FM311"

_MODULES = {"save_state_dict": "state_dict_saver", "load_state_dict": "state_dict_loader"}
_NAMES = {
    f"{package}{middle}.{old}": old
    for package in PACKAGES
    for old, module in _MODULES.items()
    for middle in ("", f".{module}")
}
_NEW = {"save_state_dict": "save", "load_state_dict": "load"}
_PARAMETERS = {
    old: ("state_dict", storage, "process_group", "coordinator_rank", "no_dist", "planner")
    for old, storage in (("save_state_dict", "storage_writer"), ("load_state_dict", "storage_reader"))
}
_NEEDLESS = {"coordinator_rank": "0", "no_dist": "False"}


def fix(call: cst.Call, ctx: Context) -> Fix | None:
    old = _NAMES.get(ctx.dotted(call.func) or "")
    given = by_parameter(call.args, _PARAMETERS[old]) if old is not None else None
    if old is None or given is None:
        return None
    if any(ctx.code(given[name].value) != value for name, value in _NEEDLESS.items() if name in given):
        return None
    new, imports = _NEW[old], []
    if isinstance(call.func, cst.Attribute):
        function = f"{ctx.quote(call.func.value)}.{new}"
    else:
        imports = [dcp_import(ctx, call)]
        function = f"{imports[0].local}.{new}"
    needless = [argument for name, argument in given.items() if name in _NEEDLESS]
    edits = renaming(ctx, call, function, needless)
    for name, argument in given.items():
        if name in _NEEDLESS:
            edits += argument_removal(ctx, call, argument, needless)
        elif argument.keyword is None and name != "state_dict":
            start = ctx.span(argument.value)[0]
            edits.append(Edit(start, start, f"{name}="))
    message = f"{old} becomes {new}"
    return rewritten(CODE, ctx, call, edits, message, imports)


RULE = Rule(CODE, "dcp-functions", __doc__, nodes=(cst.Call,), fix=fix)
