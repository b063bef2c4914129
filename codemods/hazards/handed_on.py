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
from codemods.reading.code.enclosing import enclosing, is_self
from codemods.reading.code.shapes import called_on, is_attribute, is_call_to, key_of, only_target

CODE = "FM445"

_OF_MODULES = frozenset({"load_state_dict", "state_dict"})
_ASKED = _OF_MODULES | {"clip_grad_norm_", "no_sync"}


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each call."""
    for call in ctx.nodes(cst.Call):
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _ASKED:
            continue
        model = next(iter(_stand_for(call.func, ctx)), None)
        if model is not None:
            owner = ctx.code(call.func.value)
            message = f"`{owner}` is no model, and hands `{call.func.attr.value}` on to one that is sharded"
            yield finding(CODE, Level.MANUAL, ctx, call, message, f"ask the model itself: {owner}.{model}")


def _stand_for(method: cst.Attribute, ctx: Context) -> Iterator[str]:
    """The attributes of an object that are asked for what the object's class lacks, where they hold an FSDP model."""
    if is_self(method.value, ctx):
        own = enclosing(ctx, method, cst.ClassDef)
        classes = [(ctx, own)] if own is not None else []
    else:
        made = [(o.file, o.node.func) for o in ctx.origins(method.value) if isinstance(o.node, cst.Call)]
        found = (origin for where, name in made for origin in where.origins(name))
        classes = [(origin.file, origin.node) for origin in found if isinstance(origin.node, cst.ClassDef)]
    for where, owner in classes:
        if _methods(owner, method.attr.value) or (_is_module(where, owner) and method.attr.value in _OF_MODULES):
            continue
        if _is_taken_out(method.value, owner, ctx):
            continue
        for asker in _methods(owner, "__getattr__"):
            yield from filter(None, (_handed_on(each, owner, where) for each in where.inside(asker)))


def _is_taken_out(value: cst.BaseExpression, owner: cst.ClassDef, ctx: Context) -> bool:
    """Whether each object comes out of a function that asks for the class: `module = unwrap(module)`."""
    if not isinstance(value, cst.Name):
        return False
    given = ctx.bound(value) or [(where, passed) for where, _, passed in ctx.passed_to(value, value.value)]
    return bool(given) and all(isinstance(each, cst.Call) and _asks_for(owner, each, where) for where, each in given)


def _asks_for(owner: cst.ClassDef, call: cst.Call, ctx: Context) -> bool:
    """Whether what a call runs asks whether something is of a class."""
    inside = [(where, node) for where, function in ctx.runs(call) for node in where.inside(function.body)]
    asked = [(where, node.args[1].value) for where, node in inside if is_call_to(node, "isinstance") and node.args[1:]]
    named = [(where, name) for where, classes in asked for name in where.inside(classes) if isinstance(name, cst.Name)]
    return any(origin.node is owner for where, name in named for origin in where.origins(name))


def _handed_on(node: cst.CSTNode, owner: cst.ClassDef, ctx: Context) -> str | None:
    """`model` of `getattr(self.model, name)`, of `getattr(super().__getattr__("model"), name)`, and of
    `getattr(self.__dict__["model"], name)`.
    """
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name) or node.func.value != "getattr":
        return None
    held = node.args[0].value if node.args else None
    if isinstance(held, cst.Attribute):
        return held.attr.value if ModelKind.FSDP in ctx.kinds(held) else None
    text = _name_of(held)
    set_here = [node for node in ctx.inside(owner) if isinstance(node, cst.Assign)]
    held_as = [(only_target(each), each.value) for each in set_here]
    is_model = any(
        isinstance(target, cst.Attribute) and target.attr.value == text and ModelKind.FSDP in ctx.kinds(value)
        for target, value in held_as
    )
    return text if is_model else None


def _name_of(held: cst.BaseExpression | None) -> str | None:
    """`model` of `super().__getattr__("model")`, `object.__getattribute__(self, "model")`, `self.__dict__["model"]`."""
    if isinstance(held, cst.Subscript):
        is_dict = is_attribute(held.value, "__dict__") or is_call_to(held.value, "vars")
        return key_of(held) if is_dict else None
    if called_on(held, "__getattr__", "__getattribute__") is None or not isinstance(held, cst.Call) or not held.args:
        return None
    name = held.args[-1].value
    return str(name.evaluated_value) if isinstance(name, cst.SimpleString) else None


def _is_module(ctx: Context, owner: cst.ClassDef) -> bool:
    return any(ctx.dotted(base.value) == "torch.nn.Module" for base in owner.bases)


def _methods(defined: cst.ClassDef, name: str) -> list[cst.FunctionDef]:
    return [each for each in defined.body.body if isinstance(each, cst.FunctionDef) and each.name.value == name]


CHECK = Check(CODE, "handed-on-by-getattr", __doc__, words=tuple(sorted(_ASKED)), find=find)
