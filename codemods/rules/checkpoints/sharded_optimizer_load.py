"""**What it does.** Rewrites `load_sharded_optimizer_state_dict` of `torch.distributed.checkpoint` into a `load` into
the optimizer's own state.

**Why.** Torch's function returns ShardedTensors, which an FSDP2 optimizer cannot take.

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
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard


def resume(net, optimizer, path):
    model = fully_shard(net)
    saved = {"optim": get_optimizer_state_dict(model, optimizer)}
    dist_cp.load(
        saved,
        storage_reader=dist_cp.FileSystemReader(path),
        planner=DefaultLoadPlanner(allow_partial_load=True),
    )
    set_optimizer_state_dict(
        model, optimizer, saved["optim"], options=StateDictOptions(strict=False)
    )
```

## Fix safety

Reads what FSDP1 saved, with and without a device mesh and `use_orig_params`, on the same and on another number of
ranks, and trains on as FSDP1 did (torch 2.13, from 2 ranks to 2 and 4). `allow_partial_load` takes parameters that have
no state in the file, as torch's function did. Where it is not seen which optimizer loads the result, a function of the
support module reads whatever the file holds.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Fix, Import, Level, Rule, finding
from codemods.plan import PlannedContext
from codemods.reading.call_layout import line_below, renaming
from codemods.reading.dcp_import import dcp_import
from codemods.reading.dead import states_made_for
from codemods.reading.layout import removal
from codemods.reading.optimizer_loading import loaded_from
from codemods.tables.state_dicts import DCP, DCP_READERS

CODE = "FM305"

_ORDER = ("model_state_dict", "optimizer_key", "storage_reader", "planner")
_PLANNER = Import("torch.distributed.checkpoint.default_planner", "DefaultLoadPlanner")


def match(node: cst.CSTNode, ctx: Context) -> cst.Call | None:
    return node if isinstance(node, cst.Call) and ctx.dotted(node.func) in DCP_READERS else None


def edit(call: cst.Call, ctx: PlannedContext) -> Fix:
    fix = _into_own_state(call, ctx)
    if fix is not None:
        return fix
    item = ctx.named(Import(SUPPORT, "load_sharded_optim_state_dict"), call)
    message = f"load_sharded_optimizer_state_dict becomes {item.name} of the support module"
    edits = renaming(ctx, call, item.local)
    return Fix(edits, [finding(CODE, Level.REWRITTEN, ctx, call, message)], [item])


def _into_own_state(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    """`saved = {"optim": get_optimizer_state_dict(…)}` and a load into it; None where the optimizer is not seen."""
    holder = ctx.parent(call)
    line = ctx.parent(holder) if isinstance(holder, cst.Assign) and len(holder.targets) == 1 else None
    given = {each.keyword.value if each.keyword else _ORDER[at]: each.value for at, each in enumerate(call.args[:4])}
    found = loaded_from(call, ctx)
    if not isinstance(holder, cst.Assign) or not isinstance(holder.targets[0].target, cst.Name) or found is None:
        return None
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1 or not {*_ORDER[1:3]} <= given.keys():
        return None
    model, optimizer = found
    target = holder.targets[0].target.value
    dcp, read = dcp_import(ctx, call), ctx.named(Import(DCP, "get_optimizer_state_dict"), call)
    imports = [dcp, read]
    state = f"{read.local}({model}, {optimizer})"
    if ctx.wrapping.compiles(ctx.path):
        imports.append(ctx.named(Import(SUPPORT, "with_compiled_names"), call))
        state = f"{imports[-1].local}({model}, {state})"
    if "planner" in given:
        planner = ctx.quote(given["planner"])
    else:
        imports.append(ctx.named(_PLANNER, call))
        planner = f"{imports[-1].local}(allow_partial_load=True)"
    arguments = [target, f"storage_reader={ctx.quote(given['storage_reader'])}", f"planner={planner}"]
    text = _broken(holder, f"{target} = {{", [f"{ctx.quote(given['optimizer_key'])}: {state}"], "}", ctx)
    text += line_below(ctx, holder, _broken(holder, f"{dcp.local}.load(", arguments, ")", ctx))
    message = "load_sharded_optimizer_state_dict becomes a load into the optimizer's own state"
    edits = [Edit(*ctx.bare_span(holder), text)]
    if _ORDER[0] in given:  # which only told how the model is sharded
        edits += [removal(ctx, statement) for statement in states_made_for(ctx, given[_ORDER[0]])]
    return Fix(edits, [finding(CODE, Level.REWRITTEN, ctx, call, message)], imports)


def _broken(statement: cst.Assign, start: str, items: list[str], end: str, ctx: PlannedContext) -> str:
    """A statement, with an item a line where it is long."""
    margin = line_below(ctx, statement, "")
    text = f"{start}{', '.join(items)}{end}"
    if len(margin) - len(ctx.newline) + len(ctx.plain(text)) <= ctx.width:
        return text
    return "".join([start, *(f"{margin}{ctx.indent}{each}," for each in items), margin, end])


RULE: Rule[cst.Call] = Rule(
    CODE, "sharded-optimizer-load", __doc__, nodes=(cst.Call,), methods=(), match=match, edit=edit
)
