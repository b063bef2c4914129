"""**What it does.** Finds loops over a wrapped model's `named_parameters()` that ask for parts of names, or look names
up in a collection, where FSDP1 had no such names.

**Why.** Without use_orig_params=True FSDP1 had one flat parameter a unit, called `_flat_param`: `"bias" in name`
was true of none, and one group took everything. FSDP2 has the names of the model, and the program does what was
meant (the loss differed by 0.066 with weight_decay 0.5, measured on torch 2.13). Where `use_orig_params` is chosen at
run time, that is so for runs without it.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net)
    others = [p for name, p in model.named_parameters() if "bias" in name]
    decay = [p for name, p in model.named_parameters() if "bias" not in name]
    return torch.optim.AdamW([{"params": decay}, {"params": others, "weight_decay": 0.0}])
```

## Use instead

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net)
    return torch.optim.AdamW(model.parameters())  # as it was trained so far
```

## Fix safety

Nothing is changed: it is reported, for you to look at. With use_orig_params=True FSDP1 had the same names, with
`_fsdp_wrapped_module.` in front of what it wrapped: of them it is reported where `name.startswith("head")`,
`name.split(".")[0]`, `name == "head.weight"` or `name in frozen` is asked, which was never so. A
collection of the names that the wrapped model itself gave (`if name in self.shadow`) has them all in both.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Check, Context, Finding, Level, ModelKind, finding
from codemods.reading.code.enclosing import is_self
from codemods.reading.code.shapes import called_on
from codemods.reading.models.parts import wrapped_around
from codemods.reading.parameters.lists import heads
from codemods.reading.parameters.of_model import Loop, is_summoned, loops_over
from codemods.reading.values.asked_for import Asked, asked_for
from codemods.reading.wraps.flat_parameters import may_have_had_flat_parameters

from .name_places import asks_for_place, is_name, names_of, takes_prefix_off

CODE = "FM406"

_MESSAGE = "parameters are told apart by their names: FSDP1 had one flat parameter a unit, FSDP2 has all"
_PLACED = (
    "names are asked for their beginning, their parts by number, or as a whole: FSDP1 put `_fsdp_wrapped_module.` in "
    "front of the model's and of each unit's, FSDP2 has the model's own"
)
_HINT = "it trains as it was meant now: to go on as it was, put all parameters where FSDP1 put them"

_CONTAINS = (cst.In, cst.NotIn)
_EQUALS = (cst.Equal, cst.NotEqual)
_NAMED_TABLE = (cst.Name, cst.Attribute)
_PATTERNS = ("re.", "fnmatch.")
_MODULES = frozenset({"modules", "named_modules"})
_NAMED = frozenset({"named_buffers", "named_modules", "named_parameters"})


def find(ctx: Context) -> Iterator[Finding]:
    """One finding for each function that goes over a model's parameters, at the first question."""
    seen = set()
    for call in ctx.nodes(cst.Call):
        read = _named_of(call)
        if read is None or (ctx.scope(call), ctx.code(read)) in seen:
            continue
        message = _changed(call, read, ctx)
        if message:
            seen.add((ctx.scope(call), ctx.code(read)))
            yield finding(CODE, Level.REVIEW, ctx, call, message, _HINT)


def _changed(call: cst.Call, read: cst.BaseExpression, ctx: Context) -> str:
    """What the names are asked for that FSDP1 answered otherwise."""
    loops = loops_over(call, ctx)
    if read_of(call) is not None and any(_tells_apart(loop, ctx) for loop in loops):
        if _asks_flat_parameters(ctx, _model(read, ctx)):
            return _MESSAGE
    if any(_asks_for_place(loop, ctx) for loop in loops) and _had_prefixes(ctx, read):
        return _PLACED
    return ""


def _asks_for_place(loop: Loop, ctx: Context) -> bool:
    """The same of where something stands in a name, from which nothing is taken off first."""
    names = names_of(loop)
    asked = list(asked_for(loop, names, ctx))
    if takes_prefix_off(ctx.scope(loop) or loop, ctx) or any(takes_prefix_off(e.body, e.file) for e in asked):
        return False
    bodies = [(loop, names, ctx), *((e.body, set(e.names), e.file) for e in asked)]
    return any(asks_for_place(*each) or _looks_whole_up(*each) for each in bodies)


def _looks_whole_up(body: cst.CSTNode, names: set[str], ctx: Context) -> bool:
    """`name in frozen`, `rates.get(name, 0.1)`: in a collection of other names than those that FSDP1 gave."""
    for node in ctx.inside(body):
        if isinstance(node, cst.Comparison) and is_name(node.left, names):
            asked = node.comparisons if not isinstance(ctx.parent(node), cst.Assert) else ()  # it was so under FSDP1
            looked = [each.comparator for each in asked if isinstance(each.operator, _CONTAINS)]
        elif isinstance(node, cst.Call) and node.args and is_name(node.args[0].value, names):
            looked = [table for table in [called_on(node, "get")] if table is not None]
        else:
            continue
        tables = [each for each in looked if isinstance(each, _NAMED_TABLE) and not has_these_names(each, ctx)]
        if any(not _is_of_some_model(each, ctx) for each in tables):
            return True
    return False


def _is_of_some_model(table: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the names in a collection are those of a model that may be wrapped, or there are none."""
    made = [(origin.file, origin.node) for origin in ctx.origins(table) if origin.node is not None]
    reads = [(where, called_on(node, *_NAMED, "state_dict")) for where, each in made for node in where.inside(each)]
    may_be = {ModelKind.FSDP, ModelKind.UNKNOWN}
    is_read = any(read is not None and not may_be.isdisjoint(where.kinds(read)) for where, read in reads)
    return is_read or (bool(made) and all(_is_empty(each) for _, each in made))


def _had_prefixes(ctx: Context, model: cst.BaseExpression) -> bool:
    """Whether names are read of a wrapped model, and not inside of `summon_full_params`, which cleaned them."""
    is_wrapped = ModelKind.FSDP in ctx.kinds(model) and not is_self(model, ctx)
    return is_wrapped and wrapped_around(model, ctx) is not None and not is_summoned(model, ctx)


def _model(read: cst.BaseExpression, ctx: Context) -> cst.BaseExpression:
    """`model` of `for module in model.modules()`, where `module` is read."""
    for loop in ctx.ancestors(read):
        if not isinstance(loop, cst.For) or not isinstance(loop.iter, cst.Call):
            continue
        made, targets = loop.iter.func, ctx.inside(loop.target)
        if isinstance(made, cst.Attribute) and made.attr.value in _MODULES:
            if any(isinstance(each, cst.Name) and each.value == ctx.code(read) for each in targets):
                return made.value
    return read


def _tells_apart(loop: Loop, ctx: Context) -> bool:
    """Whether a loop asks for names, or a function of the program that it gives them to: `if has_decay(name):`."""
    names = names_of(loop)
    return _asks_for_name(loop, names, ctx) or any(_is_about_names(each) for each in asked_for(loop, names, ctx))


def _is_about_names(asked: Asked) -> bool:
    return any(
        isinstance(node, (cst.Comparison, cst.Call))
        and asked.is_about(node)
        and _asks_for_name(node, set(asked.names), asked.file)
        for node in asked.file.inside(asked.body)
    )


def _asks_for_name(node: cst.CSTNode, names: set[str], ctx: Context) -> bool:
    """`"bias" in name`, `name in decayed`, `rates.get(name, 1.0)`, `name.endswith("bias")`, `name == "bias"`."""
    if isinstance(node, cst.Assert):
        return False  # it told none apart under FSDP1 either
    if isinstance(node, cst.Comparison) and is_name(node.left, names):
        if any(isinstance(each.operator, _EQUALS) for each in node.comparisons):
            return True
        looked = [each.comparator for each in node.comparisons if isinstance(each.operator, _CONTAINS)]
        return any(not has_these_names(each, ctx) for each in looked)
    if isinstance(node, cst.ComparisonTarget) and isinstance(node.operator, _CONTAINS):
        return True
    if isinstance(node, cst.Call) and _is_looked_up(node, names, ctx):
        return True
    if isinstance(node, cst.Attribute) and node.attr.value in {"endswith", "startswith"}:
        return True
    return any(_asks_for_name(child, names, ctx) for child in node.children)


def _is_looked_up(call: cst.Call, names: set[str], ctx: Context) -> bool:
    """`rates.get(name, 1.0)`, and `re.search(pattern, name)`."""
    if not any(is_name(argument.value, names) for argument in call.args):
        return False
    if (ctx.dotted(call.func) or "").startswith(_PATTERNS):
        return True
    table = called_on(call, "get")
    return table is not None and not has_these_names(table, ctx)


def _asks_flat_parameters(ctx: Context, model: cst.BaseExpression) -> bool:
    """Whether the names are those of FSDP1's flat parameters, and not read inside of `summon_full_params`."""
    wrapped = wrapped_around(model, ctx)
    if wrapped is None or is_summoned(model, ctx):
        return False
    where, around = wrapped
    return may_have_had_flat_parameters(around, where)


# The names that `model.named_parameters()` gives: which variables hold them, and which collections.

_OF_ONE = (cst.ListComp, cst.SetComp, cst.GeneratorExp)


def _named_of(call: cst.Call) -> cst.BaseExpression | None:
    """`model` of `model.named_modules()`, too."""
    is_named = isinstance(call.func, cst.Attribute) and call.func.attr.value in _NAMED
    return call.func.value if is_named and isinstance(call.func, cst.Attribute) else read_of(call)


def read_of(call: cst.Call) -> cst.BaseExpression | None:
    """`model` of `model.named_parameters()` and of `model._parameters.items()`."""
    if not isinstance(call.func, cst.Attribute):
        return None
    if call.func.attr.value == "named_parameters":
        return call.func.value
    own = call.func.value
    is_own = call.func.attr.value == "items" and isinstance(own, cst.Attribute) and own.attr.value == "_parameters"
    return own.value if is_own and isinstance(own, cst.Attribute) else None


def has_these_names(table: cst.BaseExpression, ctx: Context) -> bool:
    """Whether all that a collection is seen to be filled with are names that a wrapped model gave: flat ones, too."""
    origins = ctx.origins(table)
    if origins and all(origin.is_none for origin in origins):
        return True  # nobody passes any
    made = [(origin.file, origin.node) for origin in origins if not _is_empty(origin.node)]
    made += [(ctx, node) for node in _put_in(ctx.code(table), ctx)]
    return bool(made) and all(node is not None and _gives_names(node, where) for where, node in made)


def _is_empty(made: cst.CSTNode | None) -> bool:
    """`{}`, `[]`, `()` and `set()`, which are filled later."""
    if isinstance(made, (cst.Dict, cst.List, cst.Tuple)):
        return not made.elements
    return isinstance(made, cst.Call) and not made.args and isinstance(made.func, cst.Name)


def _put_in(table: str, ctx: Context) -> Iterator[cst.CSTNode]:
    """`name` of `table[name] = p`, `table.add(name)` and `table.append(name)`."""
    for assigned in ctx.nodes(cst.AssignTarget):
        target = assigned.target
        if isinstance(target, cst.Subscript) and ctx.code(target.value) == table and len(target.slice) == 1:
            yield target.slice[0].slice
    for call in ctx.nodes(cst.Call):
        if ctx.code(call.func) in {f"{table}.add", f"{table}.append"}:
            yield from (argument.value for argument in call.args)


def _gives_names(made: cst.CSTNode, ctx: Context) -> bool:
    """Whether it is a name of a wrapped model's parameter, or a collection of such names."""
    if isinstance(made, cst.Call):
        return any(_reads_wrapped(node, ctx) for node in ctx.inside(made))
    if isinstance(made, cst.BaseComp):
        key = made.key if isinstance(made, cst.DictComp) else made.elt if isinstance(made, _OF_ONE) else None
        loops: list[cst.CSTNode] = [made]
    else:
        key = made.value if isinstance(made, cst.Index) else made if isinstance(made, cst.Name) else None
        loops = list(ctx.ancestors(made))
    return any(
        isinstance(loop, Loop)
        and key is not None
        and is_name(key, names_of(loop))
        and any(_reads_wrapped(node, ctx) for head in heads(loop) for node in ctx.inside(head.iter))
        for loop in loops
    )


def _reads_wrapped(node: cst.CSTNode, ctx: Context) -> bool:
    read = read_of(node) if isinstance(node, cst.Call) else None
    return read is not None and ModelKind.FSDP in ctx.kinds(read)


CHECK = Check(CODE, "parameters-by-name", __doc__, words=(*_NAMED, "_parameters"), find=find)
