"""**What it does.** Finds state dicts that are asked of an object which is no model, and hands on to a wrapped one
what it lacks itself: `def __getattr__(self, name): return getattr(self.model, name)`.

**Why.** FSDP1's state dict was whole wherever it was asked for. FSDP2's is of DTensors, this rank's shards of them, and
`rewrite` gathers where it sees a model. An object with `__getattr__` is none, and the call saves shards without a word.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Engine:
    def __init__(self, net):
        self.model = FSDP(net)

    def __getattr__(self, name):
        return getattr(self.model, name)


def save(net):
    return Engine(net).state_dict()
```

## Use instead

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Engine:
    def __init__(self, net):
        self.model = FSDP(net)

    def __getattr__(self, name):
        return getattr(self.model, name)


def save(net):
    return Engine(net).model.state_dict()
```

## Fix safety

Nothing is changed: it is reported, for you to ask the model itself, which `rewrite` then follows.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding

CODE = "FM445"

_ASKED = frozenset({"clip_grad_norm_", "load_state_dict", "no_sync", "state_dict"})


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each call."""
    for call in ctx.nodes(cst.Call):
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _ASKED:
            continue
        model = next(
            (m for o in ctx.origins(call.func.value) if (m := _stands_for(o.node, o.file, call.func.attr))), None
        )
        if model is not None:
            owner = ctx.code(call.func.value)
            message = f"`{owner}` is no model, and hands `{call.func.attr.value}` on to one that is sharded"
            yield finding(CODE, Level.MANUAL, ctx, call, message, f"ask the model itself: {owner}.{model}")


def _stands_for(made: cst.CSTNode | None, ctx: Context, method: cst.Name) -> str | None:
    """The attribute of an object that is asked for what the object's class lacks, where it holds an FSDP model."""
    for origin in ctx.origins(made.func) if isinstance(made, cst.Call) else ():
        if isinstance(origin.node, cst.ClassDef) and not _methods(origin.node, method.value):
            for asker in _methods(origin.node, "__getattr__"):
                held = next((each for each in origin.file.inside(asker) if _is_handed_on(each, origin.file)), None)
                if isinstance(held, cst.Call) and isinstance(held.args[0].value, cst.Attribute):
                    return held.args[0].value.attr.value
    return None


def _is_handed_on(node: cst.CSTNode, ctx: Context) -> bool:
    """`getattr(self.model, name)`."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name) or node.func.value != "getattr":
        return False
    held = node.args[0].value if node.args else None
    return isinstance(held, cst.Attribute) and ModelKind.FSDP in ctx.kinds(held)


def _methods(defined: cst.ClassDef, name: str) -> list[cst.FunctionDef]:
    return [each for each in defined.body.body if isinstance(each, cst.FunctionDef) and each.name.value == name]


CHECK = Check(CODE, "handed-on-by-getattr", __doc__, words=tuple(sorted(_ASKED)), find=find)
