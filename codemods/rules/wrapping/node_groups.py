"""**What it does.** Replaces FSDP1's private `_init_intra_and_inter_node_groups` by the groups of a device mesh.

**Why.** The function is FSDP1's own, and goes with it. A mesh of nodes times devices has the same two groups: the ranks
of a node, and those at the same place in each node.

## Example

```python
from torch.distributed.distributed_c10d import _get_default_group
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp._init_utils import _init_intra_and_inter_node_groups


def wrap(net):
    intra, inter = _init_intra_and_inter_node_groups(_get_default_group(), 8)
    print(intra.rank(), inter.rank())
    return FSDP(net)
```

## Use instead

```python
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def wrap(net):
    inter, intra = init_device_mesh("cuda", (dist.get_world_size() // 8, 8)).get_all_groups()
    print(intra.rank(), inter.rank())
    return fully_shard(net)
```

## Fix safety

The same ranks in each group. Without a number of devices FSDP1 took `torch.cuda.device_count()`, and so does the mesh.
A call that is not unpacked into two names, or for another group than the default one, is left and reported.

## References

- https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.device_mesh.init_device_mesh
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Edit, Fix, Import, Rule, rewritten
from codemods.plan import PlannedContext
from codemods.reading.processes.accelerators import DEVICE_TYPE, names_another
from codemods.reading.wraps.process_groups import is_default

CODE = "FM115"

_FUNCTION = "_init_intra_and_inter_node_groups"


def fix(statement: cst.Assign, ctx: PlannedContext) -> Fix | None:
    """Of `intra, inter = _init_intra_and_inter_node_groups(_get_default_group())`."""
    call, target = statement.value, statement.targets[0].target
    if not isinstance(call, cst.Call) or not (ctx.fsdp1(call.func) or "").endswith(_FUNCTION):
        return None
    if len(statement.targets) != 1 or not isinstance(target, cst.Tuple) or len(target.elements) != 2:
        return None
    if any(argument.keyword is not None or argument.star for argument in call.args):
        return None
    if len(call.args) not in {1, 2} or not is_default(ctx, call.args[0].value):
        return None
    first, second = (element.value for element in target.elements)
    dist = ctx.named(Import("torch.distributed", alias="dist"), statement)
    mesh = ctx.named(Import("torch.distributed.device_mesh", "init_device_mesh"), statement)
    imports = [dist, mesh]
    torch, is_cuda, counts = ctx.named(Import("torch"), statement), not names_another(ctx), len(call.args) < 2
    imports += [torch] if counts or not is_cuda else []
    count = f"{torch.local}.{'cuda' if is_cuda else 'accelerator'}.device_count()"
    devices = count if counts else ctx.quote(call.args[1].value)
    device = '"cuda"' if is_cuda else f"{torch.local}.{DEVICE_TYPE}"
    groups = f"{mesh.local}({device}, ({dist.local}.get_world_size() // {devices}, {devices})).get_all_groups()"
    text = f"{ctx.quote(second)}, {ctx.quote(first)} = {groups}"
    message = "the groups of nodes are those of a device mesh"
    return rewritten(CODE, ctx, call, [Edit(*ctx.span(statement), text)], message, imports)


RULE = Rule(CODE, "node-groups", __doc__, nodes=(cst.Assign,), fix=fix)
