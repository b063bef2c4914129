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

from codemods.api import Context, Edit, Fix, Import, Level, Rule, finding
from codemods.plan import PlannedContext
from codemods.reading.accelerators import DEVICE_TYPE, names_another
from codemods.reading.process_groups import is_default

CODE = "FM115"

_FUNCTION = "_init_intra_and_inter_node_groups"


def match(node: cst.CSTNode, ctx: Context) -> cst.Assign | None:
    """`intra, inter = _init_intra_and_inter_node_groups(_get_default_group())`."""
    if not isinstance(node, cst.Assign) or len(node.targets) != 1 or not isinstance(node.value, cst.Call):
        return None
    call, target = node.value, node.targets[0].target
    if not (ctx.fsdp1(call.func) or "").endswith(_FUNCTION) or not isinstance(target, cst.Tuple):
        return None
    plain = all(argument.keyword is None and not argument.star for argument in call.args)
    is_for_all = bool(call.args) and is_default(ctx, call.args[0].value)
    return node if plain and is_for_all and len(target.elements) == 2 and len(call.args) <= 2 else None


def edit(found: cst.Assign, ctx: PlannedContext) -> Fix:
    call = cst.ensure_type(found.value, cst.Call)
    first, second = (element.value for element in cst.ensure_type(found.targets[0].target, cst.Tuple).elements)
    dist = ctx.named(Import("torch.distributed", alias="dist"), found)
    mesh = ctx.named(Import("torch.distributed.device_mesh", "init_device_mesh"), found)
    imports = [dist, mesh]
    torch, is_cuda, counts = ctx.named(Import("torch"), found), not names_another(ctx), len(call.args) < 2
    imports += [torch] if counts or not is_cuda else []
    count = f"{torch.local}.{'cuda' if is_cuda else 'accelerator'}.device_count()"
    devices = count if counts else ctx.quote(call.args[1].value)
    device = '"cuda"' if is_cuda else f"{torch.local}.{DEVICE_TYPE}"
    groups = f"{mesh.local}({device}, ({dist.local}.get_world_size() // {devices}, {devices})).get_all_groups()"
    text = f"{ctx.quote(second)}, {ctx.quote(first)} = {groups}"
    message = "the groups of nodes are those of a device mesh"
    return Fix([Edit(*ctx.span(found), text)], [finding(CODE, Level.REWRITTEN, ctx, call, message)], imports)


RULE: Rule[cst.Assign] = Rule(CODE, "node-groups", __doc__, nodes=(cst.Assign,), methods=(), match=match, edit=edit)
