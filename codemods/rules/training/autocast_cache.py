"""**What it does.** Gives `torch.autocast(...)` the argument `cache_enabled=False` where a wrapped model runs inside of
it.

**Why.** autocast keeps the low-precision copy of a parameter until its block ends, for parameters that are leaves of
the graph. FSDP1's were views and never kept; FSDP2's are leaves. One forward leaves a bf16 copy of the whole model on
every rank, sharded or not. Where the optimizer steps inside of the block, FSDP2 goes on with the copies of the first
step (losses 0.435, 0.598, 0.422, 0.047 before, 0.435, 1.167, 0.749, 0.337 after, torch 2.13). Where an evaluation comes
first, the copies have no gradient, and the parameters get none. All without an error.

## Example

```python
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net, optimizer, batches):
    model = FSDP(net)
    with torch.autocast("cuda", torch.bfloat16):
        for batch in batches:
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def train(net, optimizer, batches):
    model = fully_shard(net)
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        for batch in batches:
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety

Losses, gradients and memory are those of FSDP1. A model whose `MixedPrecision` is a low precision already is left as it
is: there is nothing to cast; of a model that is seen to be frozen autocast keeps nothing. Code that only scripts
without a process group come to is left too: no FSDP model runs there. Where the argument cannot be given, it is
reported: for you to decide where the training would differ, to review where only memory does (one forward a block).

## References

- https://docs.pytorch.org/docs/stable/amp.html#torch.autocast
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import libcst as cst

from codemods.api import Context, Edit, Fix, Import, Level, ModelKind, Rule, left, rewritten
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import enclosing, is_self
from codemods.reading.code.words import last_name
from codemods.reading.edits.call_layout import append_argument
from codemods.reading.forwards.calls import is_without_grad, model_of_forward
from codemods.reading.models.frozen import is_frozen
from codemods.reading.processes.one_process import has_no_group
from codemods.reading.wraps.precision import is_low

CODE = "FM212"

_AUTOCAST = re.compile(r"torch\.(\w+\.)*autocast")
_OF_DEVICE = re.compile(r"torch\.(cpu|cuda)\.")
"""Those that are not given the device have one argument less in front of `cache_enabled`."""
_LIKE_AUTOCAST = re.compile(r"autocast|\bamp\b", re.IGNORECASE)
_STEP = re.compile(r"(optim\w*(\[\w+\])?|scaler)\.step\(", re.IGNORECASE)
_Autocast = cst.Call | cst.Name | cst.Attribute
"""One that is made, or its class, which is called later: `amp = autocast if fp16 else nullcontext`."""
_DEPTH = 4
"""How many functions deep a forward is looked for."""

_WRITTEN = "autocast gets cache_enabled=False: it would keep casts of FSDP2's parameters from one forward to the next"
_PARTIAL = Import("functools", "partial")
_NOT_WRITTEN = "this autocast keeps casts of FSDP2's parameters from one forward to the next, and kept none of FSDP1's"
_HINT = "give it cache_enabled=False, or enter it anew for each forward"
_MEMORY_HINT = "give it cache_enabled=False if that copy is too large"
_MEMORY = (
    "this autocast keeps a low-precision copy of the whole FSDP2 model until its block ends; FSDP1's was never kept"
)


@dataclass(frozen=True)
class _Forward:
    """A forward of a wrapped model that some code comes to."""

    model: cst.BaseExpression
    file: Context
    is_repeated: bool
    has_grad: bool
    branches: dict[cst.CSTNode, bool] = field(default_factory=dict)
    """The conditions on the way to it, and whether they hold."""


def fix(node: cst.With | cst.FunctionDef | cst.Call, ctx: PlannedContext) -> Fix | None:
    if not ctx.plan.wraps or not ctx.mentions("autocast"):
        return None
    if not isinstance(node, cst.Call):
        return _around(node, ctx)
    blocks = _entered_elsewhere(node, ctx) if _is_autocast(node.func, ctx) else ()
    found = [told for where, block in blocks if (told := _around(block, where)) is not None]
    return max(found, key=_is_manual, default=None)


def _is_manual(told: Fix) -> bool:
    return any(each.level is Level.MANUAL for _, there in told.elsewhere for each in there.findings)


def _entered_elsewhere(autocast: cst.Call, ctx: Context) -> Iterator[tuple[Context, cst.With]]:
    """The blocks of other files that enter it where it is kept: in `self.amp`, in what a function returns."""
    waiting, seen = _names_of(autocast, ctx), set[str]()
    calls: list[tuple[Context, cst.CSTNode]] = [*_calls_around(autocast, ctx)]
    while waiting:
        name = waiting.pop()
        reads = [] if name in seen else list(ctx.reading(name, autocast))
        seen.add(name)
        found, calls = [*reads, *calls], []  # each call is looked at once
        for where, read in found:
            holder = where.parent(read)
            outer = where.parent(holder) if holder is not None else None
            if isinstance(holder, cst.WithItem) and isinstance(outer, cst.With) and where.path != ctx.path:
                yield where, outer
            elif isinstance(holder, cst.Arg) and isinstance(outer, cst.Call):
                waiting += _parameters(holder, outer, where)
            elif isinstance(holder, cst.Return) and isinstance(function := where.scope(read), cst.FunctionDef):
                if function.name.value not in seen:
                    waiting.append(function.name.value)
                    calls += where.callers(read)


def _names_of(autocast: cst.Call, ctx: Context) -> list[str]:
    """`amp` of `self.amp = autocast(…) if x else y`, and of `def amp(self): return autocast(…)`."""
    for outer in ctx.ancestors(autocast):
        if isinstance(outer, cst.Assign):
            return [last_name(target.target) for target in outer.targets]
        if isinstance(outer, cst.FunctionDef):
            return [outer.name.value]
        if isinstance(outer, (cst.WithItem, cst.Lambda, cst.ClassDef)):
            break
    return []


def _calls_around(autocast: cst.Call, ctx: Context) -> Iterator[tuple[Context, cst.CSTNode]]:
    """The calls of the function that returns it."""
    if any(isinstance(outer, cst.Return) for outer in ctx.ancestors(autocast)):
        yield from ctx.callers(autocast)


def _parameters(argument: cst.Arg, call: cst.Call, ctx: Context) -> list[str]:
    """What the functions that a call runs call the argument."""
    if argument.keyword is not None:
        return [argument.keyword.value]
    found = []
    for where, function in ctx.runs(call):
        names = [parameter.name.value for parameter in function.params.params]
        names = names[1:] if isinstance(where.scope(function), cst.ClassDef) else names
        found += names[call.args.index(argument) :][:1]
    return found


def _around(node: cst.With | cst.FunctionDef, ctx: Context) -> Fix | None:
    """What becomes of a block whose context is an autocast, or may be one, around forwards of a wrapped model."""
    given = node.items if isinstance(node, cst.With) else node.decorators
    for context in (each.item if isinstance(each, cst.WithItem) else each.decorator for each in given):
        autocasts, is_followed = _autocasts(context, ctx)
        forwards = _forwards_that_cast(node, ctx) if autocasts or not is_followed else []
        casting = [each for each in autocasts if not _is_low_by_key(each, forwards)]
        if not forwards or (autocasts and not casting) or has_no_group(ctx, node):
            continue
        written = _written(casting) if is_followed else None
        if written is not None:
            return written
        trains_otherwise = _use_kept_casts(forwards, node, ctx)
        told = (Level.MANUAL, _NOT_WRITTEN, _HINT) if trains_otherwise else (Level.REVIEW, _MEMORY, _MEMORY_HINT)
        level, message, hint = told
        return Fix(elsewhere=[(ctx, left(CODE, level, ctx, context, message, hint))])
    return None


def _written(autocasts: Sequence[tuple[Context, _Autocast]]) -> Fix | None:
    """None where one of them cannot be given the argument."""
    changes = [(where, made, change) for where, made in autocasts if (change := _edit(made, where)) is not None]
    if len(changes) < len(autocasts):
        return None
    return Fix(
        elsewhere=[
            (where, rewritten(CODE, where, made, [change], _WRITTEN, _imports(made, where)))
            for where, made, change in changes
            if change.text
        ]
    )


def _imports(made: _Autocast, ctx: Context) -> list[Import]:
    return [] if isinstance(made, cst.Call) else [ctx.named(_PARTIAL, made)]


def _edit(call: _Autocast, ctx: Context) -> Edit | None:
    """An empty one where the argument is there already; None where it says something else, or cannot be put."""
    if not isinstance(call, cst.Call):
        partial = ctx.named(_PARTIAL, call).local
        return Edit(*ctx.span(call), f"{partial}({ctx.code(call)}, cache_enabled=False)")
    given = {argument.keyword.value: argument for argument in call.args if argument.keyword is not None}
    end = ctx.bare_span(call)[1] - 1
    if "cache_enabled" in given:
        return Edit(end, end, "") if ctx.code(given["cache_enabled"].value) == "False" else None
    before = 2 if _OF_DEVICE.match(ctx.dotted(call.func) or "") else 3
    if any(argument.star for argument in call.args) or len(call.args) - len(given) > before:
        return None
    if not call.args:
        return Edit(end, end, "cache_enabled=False")
    return append_argument(ctx, call, "cache_enabled=False")


def _autocasts(context: cst.BaseExpression, ctx: Context) -> tuple[list[tuple[Context, _Autocast]], bool]:
    """The calls that make a context, where they are autocasts, and whether all that can make one is seen."""
    if isinstance(context, cst.Call) and ctx.dotted(context.func) is not None and not _is_autocast(context.func, ctx):
        return [], True
    is_like = _LIKE_AUTOCAST.search(ctx.code(context)) is not None
    found: list[tuple[Context, _Autocast]] = []
    for origin in ctx.origins(context):
        made = origin.node
        if isinstance(made, cst.Call) and (_is_off(made, origin.file) or _is_of_another_engine(made, origin.file)):
            continue
        if not isinstance(made, cst.Call):
            return [], not is_like
        if _is_autocast(made.func, origin.file):
            found.append((origin.file, made))
        elif origin.file.dotted(made.func) is None:
            stored = [(o.file, o.node) for o in origin.file.origins(made.func)]
            if stored and all(isinstance(node, cst.ClassDef) for _, node in stored):
                continue  # `NullCtx()` of the program's own
            chosen = [(where, node) for where, node in stored if not _is_nullcontext(node, where)]
            if not all(_is_autocast(_called(node), where) for where, node in chosen):
                return [], not is_like
            if len(chosen) == len(stored):
                chosen = [
                    (where, node) if isinstance(node, cst.Call) else (origin.file, made) for where, node in stored
                ]
            found += [(where, node) for where, node in chosen if isinstance(node, (cst.Call, cst.Name, cst.Attribute))]
    return found, True


def _is_nullcontext(node: cst.CSTNode | None, ctx: Context) -> bool:
    """`nullcontext`, beside which an autocast is chosen, and then called."""
    return isinstance(node, (cst.Name, cst.Attribute)) and ctx.dotted(node) == "contextlib.nullcontext"


def _is_off(call: cst.Call, ctx: Context) -> bool:
    """`autocast("cuda", enabled=False)` and `autocast("cuda", dtype=torch.float32)`, which cast no parameter."""
    given = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
    dtype = given.get("dtype")
    is_float32 = isinstance(dtype, cst.Attribute) and ctx.dotted(dtype) in {"torch.float32", "torch.float"}
    return is_float32 or ("enabled" in given and ctx.code(given["enabled"]) == "False")


def _is_low_by_key(autocast: tuple[Context, _Autocast], forwards: Sequence[_Forward]) -> bool:
    """`{"bf16": autocast(…), "fp32": nullcontext()}[args.precision]`, where the model's dtype is chosen by the same."""
    ctx, call = autocast
    element = ctx.parent(call)
    entries = ctx.parent(element) if isinstance(element, cst.DictElement) else None
    choice = ctx.parent(entries) if entries is not None else None
    if not isinstance(element, cst.DictElement) or not isinstance(choice, cst.Subscript):
        return False
    key = choice.slice[0].slice
    if not isinstance(key, cst.Index) or not isinstance(key.value, cst.Attribute):
        return False
    chosen = ctx.code(key.value), ctx.code(element.key)
    return all(is_low(forward.model, forward.file, chosen) for forward in forwards)


def _is_of_another_engine(call: cst.Call, ctx: Context) -> bool:
    """The first of `{"ddp": autocast("cuda"), "fsdp": autocast("cuda")}[engine]`."""
    element = next((outer for outer in ctx.ancestors(call) if isinstance(outer, cst.DictElement)), None)
    entries = ctx.parent(element) if element is not None else None
    if element is None or not isinstance(entries, cst.Dict):
        return False
    named = [ctx.code(each.key).lower() for each in entries.elements if isinstance(each, cst.DictElement)]
    return any("fsdp" in name for name in named) and "fsdp" not in ctx.code(element.key).lower()


def _called(node: cst.CSTNode | None) -> cst.CSTNode | None:
    """The function behind one that is kept: `f` of `partial(f, ...)`, or `f` itself."""
    return node.args[0].value if isinstance(node, cst.Call) and node.args else node


def _is_autocast(function: cst.CSTNode | None, ctx: Context) -> bool:
    if not isinstance(function, (cst.Name, cst.Attribute)):
        return False
    return _AUTOCAST.fullmatch(ctx.dotted(function) or "") is not None


def _forwards_that_cast(code: cst.With | cst.FunctionDef, ctx: Context) -> list[_Forward]:
    """Of frozen parameters autocast keeps nothing."""
    found = _forwards(code, ctx, {}, ())
    return [each for each in found if not is_low(each.model, each.file) and not is_frozen(each.file, each.model)]


def _use_kept_casts(forwards: Sequence[_Forward], code: cst.With | cst.FunctionDef, ctx: Context) -> bool:
    """Whether a cast that one forward leaves is used by another where FSDP1 made a new one, and it is not the same."""
    pairs = ((one, other) for index, one in enumerate(forwards) for other in forwards[:index])
    several = any(f.is_repeated for f in forwards) or any(_share_casts(one, other) for one, other in pairs)
    has_grad = any(f.has_grad for f in forwards) and not is_without_grad(ctx.ancestors(code), ctx)
    return several and (has_grad or _STEP.search(ctx.code(code)) is not None)


def _forwards(
    code: cst.CSTNode, ctx: Context, outer: dict[cst.CSTNode, bool], through: tuple[cst.CSTNode, ...]
) -> Iterator[_Forward]:
    """The forwards in some code, and in the functions of the program that it calls."""
    for call in (node for node in ctx.inside(code) if isinstance(node, cst.Call)):
        around = []
        for node in ctx.ancestors(call):
            around.append(node)
            if node is code:
                break
        is_repeated = any(isinstance(node, (cst.For, cst.While, cst.BaseComp)) for node in around)
        has_grad = not is_without_grad(around, ctx)
        branches = outer | _branches([call, *around])
        model = model_of_forward(call, ctx)
        if model is not None:
            yield _Forward(model, ctx, is_repeated, has_grad, branches)
        elif len(through) < _DEPTH:
            for where, function in _run_by(call, ctx):
                if function not in through:
                    for inner in _forwards(function, where, branches, (*through, function)):
                        if _is_of_plain_object(inner, call, ctx):
                            continue
                        yield _Forward(
                            inner.model,
                            inner.file,
                            is_repeated or inner.is_repeated,
                            has_grad and inner.has_grad,
                            inner.branches,
                        )


def _is_of_plain_object(inner: _Forward, call: cst.Call, ctx: Context) -> bool:
    """`self(x)` in the method that `plain.generate(x)` runs: it is other objects of the class that are wrapped."""
    owner = call.func.value if isinstance(call.func, cst.Attribute) else None
    if owner is None or is_self(owner, ctx) or not is_self(inner.model, inner.file):
        return False
    kinds = ctx.kinds(owner)
    if not kinds or kinds & {ModelKind.FSDP, ModelKind.UNKNOWN}:
        return False
    of_class = enclosing(inner.file, inner.model, cst.ClassDef)
    return any(enclosing(where, function, cst.ClassDef) is of_class for where, function in ctx.runs(call))


def _run_by(call: cst.Call, ctx: Context) -> Iterator[tuple[Context, cst.CSTNode]]:
    """The functions of the program that a call can run, `step = lambda x: model(x)` included."""
    yield from ctx.runs(call)
    for origin in ctx.origins(call.func) if isinstance(call.func, (cst.Name, cst.Attribute)) else ():
        if isinstance(origin.node, cst.Lambda):
            yield origin.file, origin.node


def _branches(way: Sequence[cst.CSTNode]) -> dict[cst.CSTNode, bool]:
    """The conditions around a node, given with all that is around it."""
    return {
        outer: inner is outer.body
        for inner, outer in pairwise(way)
        if isinstance(outer, (cst.If, cst.IfExp)) and inner is not outer.test
    }


def _share_casts(one: _Forward, other: _Forward) -> bool:
    """Whether two forwards can both happen, and can be of one model."""
    if any(other.branches.get(condition, holds) is not holds for condition, holds in one.branches.items()):
        return False
    if one.file is other.file and one.file.scope(one.model) is other.file.scope(other.model):
        return one.file.code(one.model) == other.file.code(other.model)
    made = {origin.node for origin in one.file.origins(one.model)}
    return any(origin.node in made for origin in other.file.origins(other.model))


RULE: Rule[cst.With | cst.FunctionDef | cst.Call] = Rule(
    CODE, "autocast-cache", __doc__, nodes=(cst.With, cst.FunctionDef, cst.Call), fix=fix, methods=("autocast",)
)
