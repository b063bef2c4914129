"""**What it does.** Finds modules of a wrapped model that are told by the name of their class, by `type(...) is`, or
by the bases and attributes of `type(...)` itself, and names of the class of `model.module` that go elsewhere.

**Why.** `fully_shard` gives a sharded module a class of its own: that of a `Block` is `FSDPBlock`, a subclass of
`FSDPModule` and of `Block`. `type(m) is Block` and `type(m).__name__ == "Block"` become False without a word, the bases
of `Block` are those of a base now, what `Block` defines is not in `type(m).__dict__`, and no class is called
`FullyShardedDataParallel` any more.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def blocks(net, Block):
    model = FSDP(net)
    return [m for m in model.modules() if type(m).__name__ == "Block"]
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def blocks(net, Block):
    model = FSDP(net)
    return [m for m in model.modules() if isinstance(m, Block)]
```

## Fix safety

Nothing is changed: it is reported, for you to decide. `isinstance` answers as before for the modules of the model,
and `isinstance(m, FSDPModule)` for those that are sharded.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.reading.code.enclosing import call_given
from codemods.reading.code.places import base, bound
from codemods.reading.code.shapes import called_on, went_over
from codemods.reading.code.words import is_name
from codemods.reading.wrappers.named_classes import named_classes
from codemods.reading.wraps.manual import is_constructor
from codemods.reading.wraps.wrapped import wrapped_module
from codemods.tables.names import WRAPPER

CODE = "FM411"

_WALKS = frozenset({"modules", "named_modules", "children", "named_children"})
_BUILTINS = frozenset({"bool", "bytes", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple", "type"})
_WITHOUT_MODULES = ("collections.", "numpy.", "torch.optim.", "torch.utils.data.")
_ORDERED = frozenset({"__mro__", "mro"})
_OF_CLASS = _ORDERED | {"__bases__", "__base__", "__dict__", "__subclasses__"}
_READ = "is read of a module's class, and a sharded module has a class of its own, of FSDPModule and the old one"
_READ_HINT = "where isinstance(m, FSDPModule), the old class is type(m).__bases__[1]"
_DEPTH = 2
"""How many calls a module is followed up."""
_OTHER_WRAPPERS = frozenset({"DataParallel", "DistributedDataParallel"})


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each comparison, and for each name that goes elsewhere."""
    if "type(" not in ctx.text and "__class__" not in ctx.text:
        return
    for node in ctx.nodes(cst.Comparison):
        parts = [node.left, *(target.comparator for target in node.comparisons)]
        asked = [module for part in parts if (module := _class_of(part)) is not None]
        if not asked or any(_says(WRAPPER, part, ctx) or ctx.fsdp1(part) == WRAPPER for part in parts):
            continue  # the wrapper's own name, and the wrapper, have rules that rewrite it
        if any(_is_no_module(part, ctx) for part in parts) or _names_another_wrapper(node, ctx):
            continue  # no module is of that class, sharded or not
        if _asks_for_a_part(node, ctx) and not any(ModelKind.FSDP in ctx.kinds(module) for module in asked):
            continue
        named = any(_says("FSDP", part, ctx) for part in parts)
        if named or any(_is_in_model(ctx, module) for module in asked):
            message = "a module is told by its class's name or identity, and a sharded module has a class of its own"
            hint = "use isinstance with the class, or with FSDPModule for what is sharded"
            yield finding(CODE, Level.MANUAL, ctx, node, message, hint)
    yield from _looked_up(ctx)
    yield from _classes_read(ctx)
    yield from _names_used(ctx)


def _says(name: str, part: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a string in an expression is this name."""
    return any(isinstance(node, cst.SimpleString) and node.evaluated_value == name for node in ctx.inside(part))


def _looked_up(ctx: Context) -> Iterator[Finding]:
    """`COSTS[type(m)]` and `heads.get(m.__class__.__name__)`: what a table has for the class of a module."""
    for node in (*ctx.nodes(cst.Call), *ctx.nodes(cst.Attribute)):
        module = _class_of(node)
        if module is not None and _is_key(node, ctx) and _is_in_model(ctx, module):
            message = "a table is asked for the class of a module, and a sharded module has a class of its own"
            hint = "look through `type(m).__mro__`, or ask with isinstance"
            yield finding(CODE, Level.MANUAL, ctx, node, message, hint)


def _is_key(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether what it gives is looked up: an index that is read, or the first argument of `get` or `pop`."""
    holder = ctx.parent(node)
    if isinstance(holder, cst.Index):
        subscript = ctx.parent(ctx.parent(holder) or holder)
        return not isinstance(subscript and ctx.parent(subscript), (cst.AssignTarget, cst.AugAssign))
    call = call_given(node, ctx)
    return called_on(call, "get", "pop") is not None and call is not None and call.args[0] is holder


def _classes_read(ctx: Context) -> Iterator[Finding]:
    """`type(m).__bases__`, `type(m).__mro__[1]`, `type(m).__dict__`: what a class of its own has in another place.

    A search of the whole `__mro__` still finds what it found: all of it is there, behind the new class.
    """
    for node in ctx.nodes(cst.Attribute):
        if node.attr.value in _OF_CLASS and any(_is_in_model(*each) for each in _modules_of(node.value, ctx)):
            if node.attr.value not in _ORDERED or _is_indexed(node, ctx):
                yield finding(CODE, Level.MANUAL, ctx, node, f"`{node.attr.value}` {_READ}", _READ_HINT)
    for call in ctx.nodes(cst.Call):
        function = ctx.dotted(call.func) or ctx.code(call.func)
        if function not in {"inspect.getmro", "vars"} or len(call.args) != 1:
            continue
        if function == "vars" or _is_indexed(call, ctx):
            if any(_is_in_model(*each) for each in _modules_of(call.args[0].value, ctx)):
                yield finding(CODE, Level.MANUAL, ctx, call, f"`{function}` {_READ}", _READ_HINT)


def _is_indexed(node: cst.Attribute | cst.Call, ctx: Context) -> bool:
    """Whether one of the classes is taken by its place: `__mro__[1]`, `mro()[1]`, `getmro(c)[1]`."""
    outer = ctx.parent(node)
    if isinstance(outer, cst.Call) and outer.func is node:
        node, outer = outer, ctx.parent(outer)
    return isinstance(outer, cst.Subscript) and outer.value is node


def _modules_of(node: cst.BaseExpression, ctx: Context) -> Iterator[tuple[Context, cst.BaseExpression]]:
    """The modules whose class an expression is, by a variable or a parameter too."""
    module = _class_of(node)
    if module is not None:
        yield ctx, module
    elif isinstance(node, cst.Name):
        given = ((where, each) for where, _, each in ctx.passed_to(node, node.value))
        for where, each in (*(ctx.bound(node) or ()), *given):
            module = _class_of(each)
            if module is not None:
                yield where, module


def _names_used(ctx: Context) -> Iterator[Finding]:
    """`f"{model.module.__class__.__name__}.pt"`: the name of the class of what was inside of the wrapper."""
    for node in ctx.nodes(cst.Attribute):
        module = _class_of(node) if node.attr.value in {"__name__", "__qualname__"} else None
        if not isinstance(module, cst.Attribute) or module.attr.value not in {"module", "_fsdp_wrapped_module"}:
            continue
        is_compared = any(isinstance(outer, cst.Comparison) for outer in ctx.ancestors(node))
        if not is_compared and not _is_key(node, ctx) and ModelKind.FSDP in ctx.kinds(module.value):
            message = "a sharded model's class has a name of its own, FSDP and the old one, which this name was"
            hint = f"where the name matters take {ctx.code(module.value)}.__class__.__bases__[1].__name__"
            yield finding(CODE, Level.REVIEW, ctx, node, message, hint)


def _is_no_module(node: cst.BaseExpression, ctx: Context) -> bool:
    """`dict` of `type(x) is dict`, and a library's class that no module has: `type(s) is DistributedSampler`."""
    if isinstance(node, cst.Name) and node.value in _BUILTINS and not ctx.is_local(node.value, node):
        return True
    return (ctx.dotted(node) or "").startswith(_WITHOUT_MODULES)


def _names_another_wrapper(test: cst.Comparison, ctx: Context) -> bool:
    """`type(m).__name__ == "DistributedDataParallel"`, which is none of the classes that are sharded."""
    named = named_classes(ctx, test)
    return named is not None and all(each.evaluated_value in _OTHER_WRAPPERS for each in named.classes)


def _asks_for_a_part(test: cst.Comparison, ctx: Context) -> bool:
    """`"Block" in type(m).__name__`, and `name in …` of several names: the new class is called FSDP and the old name.

    Of the wrapper itself, FSDP1's was another one.
    """
    part, operator = test.left, test.comparisons[0].operator
    if len(test.comparisons) != 1 or not isinstance(operator, (cst.In, cst.NotIn)):
        return False
    asked = [origin.node for origin in ctx.origins(part) if origin.node is not None]  # all that is seen in a list
    texts = [str(each.evaluated_value) if isinstance(each, cst.SimpleString) else "" for each in asked]
    return bool(texts) and not any(map(_may_be_of_prefix, texts))


def _may_be_of_prefix(text: str) -> bool:
    """Whether a part of a name can lie in the FSDP in front of it, whole or with its beginning."""
    ends = [text[len(end) :] for end in ("FSDP", "SDP", "DP", "P") if text.startswith(end)]
    return text in "FSDP" or any(not rest[:1].islower() for rest in ends)


def _class_of(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The `m` of `type(m)`, `type(m).__name__`, `m.__class__` and `m.__class__.__name__`."""
    if isinstance(node, cst.Attribute) and node.attr.value in {"__name__", "__qualname__"}:
        return _class_of(node.value)
    if isinstance(node, cst.Attribute) and node.attr.value == "__class__":
        return node.value
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "type":
        return node.args[0].value if len(node.args) == 1 else None
    return None


def _is_in_model(ctx: Context, module: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """A wrapped model, the variable of a loop over the modules of one, or a parameter that is given either."""
    if _is_wrapped_below(module, ctx):
        return False
    if ModelKind.FSDP in ctx.kinds(module):
        return not _is_given_before(module, ctx)
    name = base(module)
    if name is None:
        return False
    for loop in ctx.ancestors(module):
        if isinstance(loop, cst.FunctionDef):
            break
        head = loop if isinstance(loop, cst.For) else loop.for_in if isinstance(loop, cst.BaseComp) else None
        if head is not None and {name, name.split(".")[0]} & set(bound(head.target)):
            return _walks_model(ctx, went_over(head)[1], depth)
    if not isinstance(module, cst.Name) or not depth:
        return False
    given = ctx.passed_to(module, name)
    return any(_is_in_model(where, each, depth - 1) for where, _, each in given) or _is_applied(ctx, module)


def _is_given_before(module: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a parameter of a function gets all models above where they are wrapped: `find(self.net)`, then
    `self.net = FSDP(self.net)`. What the function gives itself is a part of one that it got."""
    if not isinstance(module, cst.Name):
        return False
    function = ctx.scope(module)
    calls = ctx.passed_to(module, module.value)
    given = [(where, each) for where, call, each in calls if where is not ctx or ctx.scope(call) is not function]
    known = {origin.node for where, each in given for origin in where.origins(each)}
    if not given or not known.issuperset(origin.node for origin in ctx.origins(module)):
        return False
    return all(ModelKind.FSDP not in where.kinds(each) for where, each in given)


def _is_wrapped_below(module: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a parameter of a function is wrapped below all places of it that come to this one.

    What the constructor gets is no FSDP model yet, whatever its caller calls the result.
    """
    if not isinstance(module, cst.Name):
        return False
    inner = ctx.scope(module)
    places: list[cst.CSTNode] = [module]
    for function in (outer for outer in ctx.ancestors(module) if isinstance(outer, cst.FunctionDef)):
        if module.value in {param.name.value for param in function.params.params}:
            wraps = [call for call in ctx.calls(function) if is_constructor(ctx, call) and ctx.scope(call) is function]
            given = [call for call in wraps if is_name(wrapped_module(call), module.value)]
            ends = [ctx.span(call)[0] for call in given]
            return bool(ends) and all(ctx.span(place)[0] < min(ends) for place in places)
        if function is not inner and inner is not None:
            return False
        places = [used for where, used in ctx.references_to(function) if where is ctx] or places
        inner = ctx.scope(function)
    return False


def _walks_model(ctx: Context, iterated: cst.BaseExpression, depth: int) -> bool:
    """Whether a loop is over the modules of a wrapped model."""
    model = called_on(iterated, *_WALKS)
    return model is not None and _is_in_model(ctx, model, depth)


def _is_applied(ctx: Context, module: cst.Name) -> bool:
    """Whether the function around it runs for each module of a wrapped model: `model.apply(function)`."""
    function = next((o for o in ctx.ancestors(module) if isinstance(o, (cst.FunctionDef, cst.Lambda))), None)
    if isinstance(function, cst.Lambda):
        named = module.value in {param.name.value for param in function.params.params}
        return named and _goes_over_modules(ctx, function)
    references = ctx.references_to(function) if function is not None else ()
    return any(_goes_over_modules(where, used) for where, used in references)


def _goes_over_modules(ctx: Context, function: cst.BaseExpression) -> bool:
    """Whether a function is given to what calls it for each module of a wrapped model."""
    call = call_given(function, ctx)
    if call is None:
        return False
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "apply":
        return ModelKind.FSDP in ctx.kinds(call.func.value)
    if not (ctx.dotted(call.func) or "").endswith(".apply_activation_checkpointing"):
        return False
    return bool(call.args) and ModelKind.FSDP in ctx.kinds(call.args[0].value)


CHECK = Check(CODE, "module-by-class-name", __doc__, words=("__class__", "__name__", "type"), find=find)
