"""**What it does.** Rewrites `p.data = value` for a wrapped model's parameter into `p.data.copy_(value)`.

**Why.** FSDP1 looked for parameters whose data were exchanged, and took over what it found. FSDP2 gathers from memory
of its own: the new tensor is kept by the parameter and never used in a forward, without an error. After `p.data =
p.data * 0.5` behind every step the losses were 0.438, 0.032, 0.004 before, 0.438, 1.707, 7.089 after (torch 2.13).

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def restore(net, shadow):
    model = FSDP(net)
    for name, p in model.named_parameters():
        p.data = shadow[name]
    return model
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def restore(net, shadow):
    model = fully_shard(net)
    for name, p in model.named_parameters():
        p.data.copy_(shadow[name])
    return model
```

## Fix safety

The same values, in the parameter's own memory, and not shared with the value any more. A value that is no DTensor
raises. Where a model that is not sharded may come too, its tensors are exchanged as before: they may be shared with
others (`p.data = engine[name]`), or the old ones kept (`backup[name] = p.data`). What only moves or casts the parameter
(`p.data = p.data.to(device)`) is reported, and so is what is exchanged for a tensor that the parameter carries
(`p.data = p._master`), which may be of another dtype.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Edit, Fix, Import, Level, ModelKind, Raise, Rule, left, rewritten
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import enclosing
from codemods.reading.code.places import bound
from codemods.reading.code.shapes import alone, called_on, is_attribute, parameters
from codemods.reading.edits.layout import line_before
from codemods.reading.models.makeup import makeup
from codemods.reading.models.parts import is_given_plain, wrapped_around
from codemods.reading.parameters.dimensions import is_for_scalars
from codemods.reading.parameters.of_model import READERS, Reading, readings

CODE = "FM213"

_OF_OPTIMIZER = re.compile(r"""\w*optim\w*\.param_groups\b|\[["']params["']\]""", re.IGNORECASE)
_MOVES = frozenset({"bfloat16", "contiguous", "cpu", "cuda", "double", "float", "half", "pin_memory", "to", "type"})
_SAME = frozenset({"clone", "data", "detach"})
_RESHAPES = frozenset({"expand", "flatten", "narrow", "permute", "repeat", "reshape", "squeeze", "t", "transpose"})
_RESHAPES |= {"unflatten", "unsqueeze", "view"}

_DEPTH = 3
"""How many names are followed that stand for parameters."""
_DTENSOR = Import("torch.distributed.tensor", "DTensor")
_MOVED = "a sharded parameter is moved or cast through .data, which an FSDP2 model does not follow"
_EXCHANGED = "the data of a sharded parameter are exchanged for a tensor that is kept on it, which FSDP2 does not see"
_RESHAPED = "a sharded parameter is given another shape through .data, which an FSDP2 model does not see"
_BEFORE = "give it the shape before the model is sharded"
_KEEP = "let mp_policy cast for the forward, so that the parameters themselves are the master weights"
_HINT = "call model.to(...) where the whole model is meant, or cast it before it is sharded"


def fix(statement: cst.Assign, ctx: PlannedContext) -> Fix | None:
    """Of `p.data = value`."""
    target, value = statement.targets[0].target, statement.value
    if len(statement.targets) != 1 or not isinstance(target, cst.Attribute) or target.attr.value != "data":
        return None
    if not ctx.plan.wraps or is_for_scalars(statement, ctx):
        return None
    reading = _reading(target.value, statement, ctx)
    is_seen = reading is not None or _is_of_optimizer(target.value, statement, ctx)
    if not is_seen and not _is_averaged_inside(target.value, statement, ctx):
        return None
    if _is_above_the_wrap(statement, ctx):
        return None
    param = ctx.code(target.value)
    for made in _values(value, ctx):
        if _is_moved(made, param, ctx):
            return _stopped(statement, target.value, ctx, _MOVED, _HINT)
        if isinstance(made, cst.Attribute) and ctx.code(made.value) == param and made.attr.value != "grad":
            return _stopped(statement, target.value, ctx, _EXCHANGED, _KEEP)
        if _is_reshaped(made, param, ctx):
            return _stopped(statement, target.value, ctx, _RESHAPED, _BEFORE)
    first, last = ctx.span(value)
    written = ctx.quote_text(first + 1, last - 1) if _is_in_parentheses(value) else ctx.quote(value)
    if isinstance(value, cst.Yield) and not value.lpar:
        written = f"({written})"
    message = f"`{param}.data` is written in place: FSDP2 does not see a tensor that is put in its stead"
    copied = f"{ctx.quote(target.value)}.data.copy_({written})"
    is_same = reading is None or not _may_be_plain(reading, ctx) or _is_new(value, ctx)
    if is_same or not _can_be_two(statement, ctx):
        return rewritten(CODE, ctx, statement, [Edit(*ctx.span(statement), copied)], message)
    dtensor, line = ctx.named(_DTENSOR, statement), f"{ctx.newline}{line_before(ctx, statement)}"
    lines = [f"if isinstance({ctx.quote(target.value)}, {dtensor.local}):", f"{ctx.indent}{copied}"]
    lines += ["else:", f"{ctx.indent}{ctx.quote(target)} = {ctx.quote(value)}"]
    return rewritten(CODE, ctx, statement, [Edit(*ctx.span(statement), line.join(lines))], message, [dtensor])


def _is_averaged_inside(param: cst.BaseExpression, statement: cst.Assign, ctx: Context) -> bool:
    """Whether a model averages parameters of its own, from its forward: `k.data = k.data * m + q.data * (1 - m)` of
    `zip(self.q.parameters(), self.k.parameters())` (MoCo).
    """
    name = ctx.code(param)
    loops = (outer for outer in ctx.ancestors(statement) if isinstance(outer, cst.For))
    over = [node for loop in loops if name in bound(loop.target) for node in ctx.inside(loop.iter)]
    if not _is_average(statement.value, name, ctx) or all(called_on(node, *READERS) is None for node in over):
        return False
    function, owner = enclosing(ctx, statement, cst.FunctionDef), enclosing(ctx, statement, cst.ClassDef)
    if function is None or not (function.name.value == "forward" or ctx.callers(statement)):
        return False
    return any(owner is each for wrap in ctx.wrapping.calls(ctx.path) for _, each in makeup(*wrap).classes)


def _is_average(value: cst.BaseExpression, param: str, ctx: Context) -> bool:
    return isinstance(value, cst.BinaryOperation) and any(ctx.code(each) == param for each in ctx.inside(value))


def _may_be_plain(reading: Reading, ctx: Context) -> bool:
    """Whether a model that is not sharded can come there too."""
    around = (wrapped_around(module, where) for where, module in _modules_of(reading.node, ctx))
    return any(found is not None and found[0].kinds(found[1]) != {ModelKind.FSDP} for found in around)


def _modules_of(read: cst.CSTNode, ctx: Context, depth: int = _DEPTH) -> Iterator[tuple[Context, cst.BaseExpression]]:
    """`model` of `model.named_parameters()`, by names too (`dict(…)` of those), `model.out` of `model.out.weight`."""
    if isinstance(read, cst.Call):
        if isinstance(read.func, cst.Attribute) and read.func.attr.value in READERS:
            yield ctx, read.func.value
        for argument in read.args if isinstance(read.func, cst.Name) else ():
            yield from _modules_of(argument.value, ctx, depth)
    elif isinstance(read, cst.Name) and depth:
        for made in ctx.origins(read):
            if made.node is not None and made.node is not read:
                yield from _modules_of(made.node, made.file, depth - 1)
    elif isinstance(read, cst.Attribute):
        yield ctx, read.value


def _is_new(value: cst.BaseExpression, ctx: Context) -> bool:
    """Whether nobody can see that a tensor is written to and not exchanged: `p.data * beta + value`, of a program that
    keeps the data of no parameter.
    """
    if not isinstance(value, cst.BinaryOperation):
        return False
    kept = (node.value for node in ctx.nodes(cst.Assign) if not is_attribute(node.targets[0].target, "data"))
    return not any(is_attribute(each, "data") for each in kept)


def _can_be_two(statement: cst.Assign, ctx: Context) -> bool:
    """Whether it is a line of its own."""
    line = ctx.parent(statement)
    return alone(line) is statement and isinstance(line and ctx.parent(line), (cst.IndentedBlock, cst.Module))


def _is_above_the_wrap(statement: cst.Assign, ctx: Context) -> bool:
    """Whether the loops around go over what the function is given, by each of its calls, before that is wrapped."""
    over = [outer.iter for outer in ctx.ancestors(statement) if isinstance(outer, cst.For)]
    named = [each for head in over for each in ctx.inside(head) if isinstance(each, cst.Name)]
    function = ctx.scope(statement)
    taken = {each.name.value for each in parameters(function)} if isinstance(function, cst.FunctionDef) else set()
    given = [each for each in named if each.value in taken]
    return bool(given) and all(is_given_plain(ctx, each) for each in given)


def _stopped(statement: cst.Assign, param: cst.BaseExpression, ctx: Context, message: str, hint: str) -> Fix:
    stopped = Raise(statement, CODE, message, param, _DTENSOR)
    return left(CODE, Level.MANUAL, ctx, statement, message, hint, [stopped])


def _values(value: cst.BaseExpression, ctx: Context) -> list[cst.BaseExpression]:
    """What is assigned, or what the variable that is assigned is bound to here."""
    bound = ctx.bound(value) if isinstance(value, cst.Name) else None
    return [made for where, made in bound if where is ctx] if bound else [value]


def _is_moved(value: cst.BaseExpression, param: str, ctx: Context) -> bool:
    """`p.data.to(device)`, `p.detach().half().clone()`: the parameter itself, elsewhere or in another dtype."""
    is_moved = False
    while ctx.code(value) not in {param, f"{param}.data"}:
        if isinstance(value, cst.Call):
            value = value.func
        elif isinstance(value, cst.Attribute) and value.attr.value in _MOVES | _SAME:
            is_moved |= value.attr.value in _MOVES
            value = value.value
        else:
            return False
    return is_moved


def _is_reshaped(value: cst.BaseExpression, param: str, ctx: Context) -> bool:
    """`p.data.unsqueeze(0)`, `p[:3]`: what is put in the place of the parameter is not of its shape."""
    if isinstance(value, cst.Subscript):
        return ctx.code(value.value) in {param, f"{param}.data"}
    if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute):
        return False
    return value.func.attr.value in _RESHAPES and ctx.code(value.func.value) in {param, f"{param}.data"}


def _is_in_parentheses(value: cst.BaseExpression) -> bool:
    return len(value.lpar) == 1 and not isinstance(value, (cst.Tuple, cst.GeneratorExp, cst.Yield))


def _reading(param: cst.BaseExpression, statement: cst.Assign, ctx: Context) -> Reading | None:
    """Where it is seen to be a parameter of a wrapped model, in a loop or by its name."""
    text = ctx.code(param)
    start, end = ctx.span(statement)
    for reading in readings(ctx):
        first, last = ctx.span(reading.body)
        if first <= start and end <= last and ctx.code(reading.param) == text:
            return reading
    return None


def _is_of_optimizer(param: cst.BaseExpression, statement: cst.Assign, ctx: Context) -> bool:
    """Whose parameters an optimizer has is often not seen: a file that names FSDP1 does not speak of another's."""
    names_fsdp1 = any(True for _ in ctx.references())
    return names_fsdp1 and any(_goes_over_optimizer(loop, ctx.code(param), ctx) for loop in ctx.ancestors(statement))


def _goes_over_optimizer(loop: cst.CSTNode, param: str, ctx: Context) -> bool:
    if not isinstance(loop, cst.For) or not re.search(rf"\b{re.escape(param)}\b", ctx.code(loop.target)):
        return False
    given = loop.iter.args if isinstance(loop.iter, cst.Call) else ()
    names = [n for n in (loop.iter, *(argument.value for argument in given)) if isinstance(n, cst.Name)]
    made = [o.file.code(o.node) for name in names for o in ctx.origins(name) if o.node is not None]
    return any(_OF_OPTIMIZER.search(text) for text in (ctx.code(loop.iter), *made))


RULE = Rule(CODE, "assigned-data", __doc__, nodes=(cst.Assign,), fix=fix, assigned=("data",))
