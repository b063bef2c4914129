"""**What it does.** Recognises a project's own copy of torch's FSDP sources (the wrapper, its policies, its helpers)
and leaves the file alone. The calls that use such a class are named.

**Why.** A copy is not code that uses FSDP1, it is FSDP1: rewriting it would be editing torch. It was made because
something in torch had to be changed, and only its author knows whether FSDP2 needs that too.

## Example

```python
from torch import nn


class FullyShardedDataParallel(nn.Module):
    def __init__(self, module, process_group=None):
        super().__init__()
        self._fsdp_wrapped_module = module


def build(net):
    return FullyShardedDataParallel(net)
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def build(net):
    return fully_shard(net)
```

## Fix safety

Nothing is changed. A file is taken for a copy when it defines the class itself on top of `nn.Module`, or several of
the private names that only torch's sources define. Of a copy that nothing is seen to use a note is all there is.

## References

- https://github.com/pytorch/pytorch/tree/main/torch/distributed/fsdp
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, finding
from codemods.tables.names import WRAPPER

CODE = "FM111"

_TORCH_DEFINES = frozenset(
    {
        "FlatParamHandle",
        "FlatParameter",
        "FlattenParamsWrapper",
        "FullyShardedModuleState",
        "_ConfigAutoWrap",
        "_ExecOrderData",
        "_FSDPPolicy",
        "_FSDPState",
        "_all_gather_optim_state",
        "_auto_wrap",
        "_broadcast_processed_state",
        "_flatten_optim_state",
        "_flatten_optim_state_dict",
        "_get_fully_sharded_module_to_states",
        "_get_fqn_to_fsdp_param_info",
        "_module_wrap_policy",
        "_optim_state_dict",
        "_optim_state_dict_to_load_impl",
        "_recursive_wrap",
    }
)
"""Private names of torch's FSDP sources, of several versions."""
_UNUSED_HINT = "delete it, unless something outside of the program puts it in the place of torch's file"
_HINT = "use torch's own, then run again; see whether FSDP2 still needs what was changed in the copy"


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each place of the program that calls what a copy defines, or for the copy where none does."""
    if not is_copy(ctx):
        return
    wrapper = next((d for d in _defined(ctx) if d.name.value == WRAPPER and isinstance(d, cst.ClassDef)), None)
    first = wrapper or next(d for d in _defined(ctx) if d.name.value in _TORCH_DEFINES)
    calls = list(_calls(ctx, wrapper))
    if not calls and _is_used(ctx):
        message = "a copy of torch's FSDP sources is not the program's code, and is left as it is"
        yield finding(CODE, Level.MANUAL, ctx, first, message, _HINT)
    elif not calls:
        message = "a copy of torch's FSDP sources, which nothing here is seen to use, is left as it is"
        yield finding(CODE, Level.KEPT, ctx, first, message, _UNUSED_HINT)
    yield from calls


def _is_used(ctx: Context) -> bool:
    """Whether a file that is no copy itself names something of this one."""
    return any(not is_copy(where) for definition in _defined(ctx) for where, _ in ctx.references_to(definition))


def _calls(ctx: Context, wrapper: cst.FunctionDef | cst.ClassDef | None) -> Iterator[Finding]:
    for definition in _defined(ctx):
        for where, used in ctx.references_to(definition):
            call = where.parent(used)
            if not isinstance(call, cst.Call) or call.func is not used or is_copy(where):
                continue
            does = "wraps with a copy of torch's FSDP" if definition is wrapper else "calls a copy of torch's FSDP"
            message = f"this {does} ({ctx.path.name}), which is left as it is"
            yield finding(CODE, Level.MANUAL, where, call, message, _HINT)


def is_copy(ctx: Context) -> bool:
    """Whether a file is one of torch's FSDP sources, as a project has copied and changed it."""
    defined = list(_defined(ctx))
    if len({definition.name.value for definition in defined} & _TORCH_DEFINES) > 1:
        return True
    return any(_is_wrapper(ctx, definition) for definition in defined if isinstance(definition, cst.ClassDef))


def _is_wrapper(ctx: Context, definition: cst.ClassDef) -> bool:
    bases = {ctx.dotted(base.value) for base in definition.bases}
    return definition.name.value == WRAPPER and "torch.nn.Module" in bases


def _defined(ctx: Context) -> Iterator[cst.FunctionDef | cst.ClassDef]:
    return (node for node in ctx.top.body if isinstance(node, (cst.FunctionDef, cst.ClassDef)))


CHECK = Check(CODE, "vendored-fsdp", __doc__, words=("FullyShardedDataParallel", "fsdp"), find=find)
