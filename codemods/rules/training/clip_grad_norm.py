"""**What it does.** Rewrites `model.clip_grad_norm_(max_norm)` into `torch.nn.utils.clip_grad_norm_`.

**Why.** An FSDP2 model has no such method; on DTensor gradients the function of `torch.nn.utils` computes the
global norm. It returns a DTensor: where the value is used, `.full_tensor()` makes it the plain tensor that FSDP1
returned.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def step(net, batch):
    model = FSDP(net)
    model(batch).sum().backward()
    return model.clip_grad_norm_(1.0)
```

## Use instead

```python
import torch
from torch.distributed.fsdp import fully_shard


def step(net, batch):
    model = fully_shard(net)
    model(batch).sum().backward()
    return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
```

## Fix safety

Equal norms for p = 1, 2, 3 (4.73994970 on both sides, torch 2.13). For the infinity norm, which fails on a rank with an
empty shard, for a norm type that only run time knows, for a model with ignored parameters or with parts on another mesh
(NO_SHARD inside of FULL_SHARD), a function of the support module is called, written for that case. So it is for
offloaded ones, unless the program is seen to start groups that take CPU tensors: `init_process_group("nccl")` becomes
`"cpu:gloo,cuda:nccl"`. Where the model runs between the backward and the clipping, it is resharded first: until then,
`parameters()` of an FSDP2 model has copies without gradients. Where a training of phases makes a new optimizer for
each, what is frozen since may keep its last gradient, which FSDP1 dropped: what requires one is clipped there, and no
more. What is not seen to be an FSDP model keeps its own method where it has one: XLA's wrapper computes a global norm
of plain shards.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
"""

from __future__ import annotations

from collections.abc import Set

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Fix, Import, Level, ModelKind, Rule, finding, left, replaced, rewritten
from codemods.plan import PlannedContext
from codemods.reading.code.program import defines_method, sets_attribute
from codemods.reading.code.shapes import called_on
from codemods.reading.code.words import is_name
from codemods.reading.edits.call_layout import either, quoted_argument, text_literal
from codemods.reading.edits.layout import insertion
from codemods.reading.edits.resharding import reshards
from codemods.reading.forwards.after_forward import clips_after_forward
from codemods.reading.gradients.clipping import (
    IGNORED,
    IGNORED_HINT,
    STALE,
    STALE_HINT,
    any_clipper,
    clipper,
    has_plain_norm,
    is_asked_for,
    is_torchs_otherwise,
    may_be_anothers,
)
from codemods.reading.gradients.stale import may_have_stale_gradients
from codemods.reading.models.frozen import ignores_only_frozen
from codemods.reading.parameters.of_model import READERS
from codemods.reading.wraps.left_out import ignores_parameters
from codemods.tables.names import WRAPPER

CODE = "FM202"

_FUNCTION = "clip_grad_norm_"
_WRAPPERS = f"{WRAPPER}.{_FUNCTION}"
_HINT = "for an FSDP2 model call torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)"


def fix(method: cst.Attribute, ctx: PlannedContext) -> Fix | None:
    """Of `model.clip_grad_norm_`, or the wrapper's `FSDP.clip_grad_norm_` with the model as its first argument."""
    if method.attr.value != _FUNCTION:
        return None
    call, model = ctx.parent(method), method.value
    if ctx.fsdp1(method) == _WRAPPERS:
        given = call.args[0] if isinstance(call, cst.Call) and call.func is method and call.args else None
        if given is None or given.star or given.keyword is not None:
            return None
        return _rewritten(method, given.value, {ModelKind.FSDP}, ctx)
    if ctx.dotted(method) is not None:
        return None
    held = ctx.kinds(_put_in(model, ctx) or model)
    if ModelKind.FSDP not in held and isinstance(call, cst.AssignTarget):
        return None  # a function of the program's own becomes an attribute
    if ModelKind.FSDP not in held and _is_given_parameters(call, ctx):
        return None  # FSDP1's takes none: this is torch's function, or accelerate's method
    if ModelKind.FSDP not in held and is_asked_for(method, ctx.code(model), ctx):
        return None  # an FSDP2 model has no such method, and does not come here
    if may_be_anothers(held, ctx) and is_torchs_otherwise(method, ctx.code(model), ctx):
        return None  # nor here, where another library's wrapper may
    return _rewritten(method, model, held, ctx) if held & {ModelKind.FSDP, ModelKind.UNKNOWN} else None


def _put_in(got: cst.BaseExpression, ctx: Context) -> cst.BaseExpression | None:
    """What `x.set_embeddings(…)` of this function was given, of `x.get_embeddings()`."""
    if not isinstance(got, cst.Call) or got.args or not isinstance(got.func, cst.Attribute):
        return None
    owner, name = got.func.value, got.func.attr.value
    if not name.startswith("get_"):
        return None
    setter = f"{ctx.code(owner)}.set_{name.removeprefix('get_')}"
    for function in ctx.ancestors(got):
        calls = ctx.calls(function) if isinstance(function, cst.FunctionDef) else ()
        given = [call.args[0].value for call in calls if ctx.code(call.func) == setter and call.args]
        if given:
            return given[-1]
    return None


def _named_beside(call: cst.Call, ctx: PlannedContext) -> str:
    """What the function around calls torch's own by, elsewhere in it: then two branches may come to the same."""
    for other in ctx.calls(ctx.scope(call)):
        named = other.func
        while isinstance(named, cst.Attribute):
            named = named.value
        if ctx.dotted(other.func) == f"torch.nn.utils.{_FUNCTION}" and isinstance(named, cst.Name):
            return ctx.code(other.func) if ctx.same_meaning(other.func, call) else ""
    return ""


def _rewritten(method: cst.Attribute, model: cst.BaseExpression, held: Set[ModelKind], ctx: PlannedContext) -> Fix:
    call, text = ctx.parent(method), ctx.code(model)
    if ModelKind.FSDP not in held and not _is_called_as_fsdp1s(call, ctx):
        message = f"cannot tell whether `{text}` is an FSDP model"
        return left(CODE, Level.MANUAL, ctx, method, message, _HINT)
    if not isinstance(call, cst.Call) or call.func is not method:
        return _kept_for_later(method, ctx)
    start, end = ctx.bare_span(call)
    by_class = model is not method.value
    given = call.args[1:] if by_class else call.args
    first = ctx.span(given[0])[0] if given else end - 1
    gap = ctx.text[:first].removeprefix(ctx.text[:first].rstrip())  # a line break, where they have lines of their own
    support = clipper(model, has_plain_norm(call, 1 if by_class else 0, ctx), ctx, ctx.plan)
    if support:
        item = ctx.named(Import(SUPPORT, support), call)
        function, suffix, what = item.local, "", f"{support}, a support function"
    else:
        item = ctx.named(Import("torch"), call)
        function = f"{item.local}.nn.utils.{_FUNCTION}"
        suffix, what = "" if _is_dropped(call, ctx) else ".full_tensor()", function
        function = _named_beside(call, ctx) or function
    arguments = f",{gap or ' '}{ctx.quote_text(first, end - 1)}" if given else ""
    parameters = f"{ctx.quote(model)}.parameters()"
    if may_have_stale_gradients(call, ctx):
        parameters = f"[p for p in {parameters} if p.requires_grad]"
    parameters = f"{'' if by_class else gap}{parameters}"
    message, imports = f"{_FUNCTION} becomes {what}", [item] if support or function == what else []
    if ModelKind.FSDP not in held:
        changed = _but_for_others(model, call, f"{function}({parameters}{arguments}){suffix}", ctx)
        message = f"{message}, for an FSDP model: what `{text}` is, is not seen, and another's own method stays"
        return Fix([Edit(start, end, changed)], [finding(CODE, Level.REVIEW, ctx, method, message)], imports)
    edits = [Edit(start, end, f"{function}({parameters}{arguments}){suffix}")]
    if clips_after_forward(call, model, ctx):
        lines, needed = reshards(ctx, [model], call)
        edits.append(insertion(ctx, call, lines))
        stale = finding(CODE, Level.MANUAL, ctx, method, f"{message}; {STALE}", STALE_HINT)
        return Fix(edits, [stale], [*imports, *needed])
    if ignores_parameters(ctx, model, ctx.plan) and not ignores_only_frozen(ctx, model):
        ignored = finding(CODE, Level.MANUAL, ctx, method, f"{message}; {IGNORED}", IGNORED_HINT)
        return Fix(edits, [ignored], imports)
    return rewritten(CODE, ctx, method, edits, message, imports)


def _is_dropped(call: cst.Call, ctx: Context) -> bool:
    """Whether nothing reads the norm: it stands alone, or goes to a `_` that is not read."""
    holder = ctx.parent(call)
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1 and is_name(holder.targets[0].target, "_"):
        return not ctx.uses(holder)
    return isinstance(holder, cst.Expr)


def _but_for_others(model: cst.BaseExpression, call: cst.Call, text: str, ctx: PlannedContext) -> str:
    """The new call for an FSDP2 model, which has no such method; XLA's and fairscale's wrappers clip as before."""
    own = f"{ctx.quote(model)}.{_FUNCTION}({', '.join(quoted_argument(ctx, argument) for argument in call.args)})"
    return either(ctx, call, f"hasattr({ctx.quote(model)}, {text_literal(ctx, call, _FUNCTION)})", own, text)


def _kept_for_later(method: cst.Attribute, ctx: PlannedContext) -> Fix:
    """The method as a value: whoever calls it gives the norm type."""
    item = ctx.named(Import(SUPPORT, any_clipper(method.value, ctx, ctx.plan)), method)
    partial = ctx.named(Import("functools", "partial"), method)
    text = f"{partial.local}({item.local}, list({ctx.quote(method.value)}.parameters()))"
    message = f"{_FUNCTION} becomes {item.name}, a support function"
    return replaced(CODE, ctx, method, text, message, [item, partial])


def _is_called_as_fsdp1s(call: cst.CSTNode | None, ctx: Context) -> bool:
    """`x.clip_grad_norm_(1.0)`: only FSDP1 has such a method, unless the program has one of its own.

    Accelerate's takes the parameters first.
    """
    if not isinstance(call, cst.Call) or len(call.args) not in {1, 2} or defines_method(ctx, _FUNCTION):
        return False
    if any(argument.star for argument in call.args) or sets_attribute(ctx, _FUNCTION):
        return False
    first = call.args[0].value
    return not (isinstance(first, cst.Call) and isinstance(first.func, cst.Attribute))


def _is_given_parameters(call: cst.CSTNode | None, ctx: Context) -> bool:
    """`x.clip_grad_norm_(list(a.parameters()) + list(b.parameters()), 1.0)`."""
    first = call.args[0].value if isinstance(call, cst.Call) and call.args else None
    return first is not None and any(called_on(each, *READERS) is not None for each in ctx.inside(first))


RULE = Rule(CODE, "clip-grad-norm-method", __doc__, nodes=(cst.Attribute,), fix=fix, methods=(_FUNCTION,))
