"""**What it does.** Gives each parameter a `step` of its own where torch's `set_optimizer_state_dict` or
`set_state_dict` loads the full optimizer state of a wrapped model.

**Why.** FSDP1 without `use_orig_params=True` saved one `step` tensor for all parameters of a unit. Torch takes such a
number over as it is, an FSDP2 optimizer has a state for each parameter, and each of them advances the one they share:
after three steps it says 21. Adam's bias correction is wrong from then on, without an error.

## Example

```python
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def resume(net, path):
    model = FSDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    options = StateDictOptions(full_state_dict=True)
    set_optimizer_state_dict(model, optimizer, torch.load(path), options=options)
```

## Use instead

```python
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict
from torch.distributed.fsdp import fully_shard

from fsdp2_support import with_own_steps


def resume(net, path):
    model = fully_shard(net)
    optimizer = torch.optim.AdamW(model.parameters())
    options = StateDictOptions(full_state_dict=True)
    set_optimizer_state_dict(model, optimizer, with_own_steps(torch.load(path)), options=options)
```

## Fix safety

Trains on as FSDP1 did (torch 2.13, from 2 ranks to 2 and 4). Nothing else of torch's own functions has to change: what
they read and load has the same keys and values for both. A state that is loaded without `full_state_dict` came through
`torch.distributed.checkpoint.load`, which shares nothing.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Fix, Import, ModelKind, Rule, rewritten
from codemods.plan import PlannedContext
from codemods.reading.code.arguments import by_parameter
from codemods.reading.wrappers.beside_fsdp2 import is_of_fsdp2
from codemods.reading.wraps.flat_parameters import had_original_parameters
from codemods.tables.state_dicts import DCP

CODE = "FM313"

_STATE = "optim_state_dict"
_PARAMETERS = {
    f"{DCP}.set_optimizer_state_dict": ("model", "optimizers", _STATE),
    f"{DCP}.set_state_dict": ("model", "optimizers"),
}


def fix(call: cst.Call, ctx: PlannedContext) -> Fix | None:
    function = ctx.dotted(call.func)
    if not ctx.plan.wraps or function not in _PARAMETERS:
        return None
    given = by_parameter(call.args, _PARAMETERS[function])
    if given is None or not {"model", _STATE, "options"} <= set(given):
        return None
    model, state = given["model"].value, given[_STATE].value
    if not ctx.kinds(model) & {ModelKind.FSDP, ModelKind.UNKNOWN} or had_original_parameters(model, ctx):
        return None
    if is_of_fsdp2(model, ctx) or not _may_be_full(given["options"].value, ctx):
        return None
    if isinstance(state, cst.Call) and ctx.code(state.func).endswith("with_own_steps"):
        return None
    item = ctx.named(Import(SUPPORT, "with_own_steps"), call)
    message = "the optimizer state gets a step for each parameter: FSDP1 saved one for a unit"
    return rewritten(CODE, ctx, call, [Edit(*ctx.span(state), f"{item.local}({ctx.quote(state)})")], message, [item])


def _may_be_full(options: cst.BaseExpression, ctx: Context) -> bool:
    for origin in ctx.origins(options):
        if not isinstance(origin.node, cst.Call) or "**" in origin.file.code(origin.node):
            return not origin.is_none
        given = {a.keyword.value: origin.file.code(a.value) for a in origin.node.args if a.keyword is not None}
        if given.get("full_state_dict", "False") != "False":
            return True
    return False


RULE = Rule(
    CODE, "shared-steps", __doc__, nodes=(cst.Call,), fix=fix, functions=("set_optimizer_state_dict", "set_state_dict")
)
