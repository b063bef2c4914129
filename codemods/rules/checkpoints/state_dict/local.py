"""`LOCAL_STATE_DICT`: each rank saves and loads its part, which on FSDP2 is what `state_dict()` gives by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import SUPPORT, Context, Edit, Fix, Import, Level, ModelKind, NotStatic, Raise, finding, left
from codemods.plan import PlannedContext
from codemods.reading.code.shapes import callee
from codemods.reading.edits.block_layout import leave_context
from codemods.reading.edits.call_layout import quoted_argument
from codemods.reading.state_dicts.setting import depends_on_setting
from codemods.reading.state_dicts.usual_setting import reads_further
from codemods.tables.state_dicts import CONTEXT

from .calls import PREFIX
from .onward import calls_in, reads_below

CODE = "FM301"

HINT = "save SHARDED_STATE_DICT with an FSDP1 script first, and load that"
_KIND = "StateDictType.LOCAL_STATE_DICT"
_LOAD = "load_state_dict"
_OF_MODEL = "load_local_state_dict"


def is_local(call: cst.Call, ctx: Context) -> bool:
    return any(ctx.fsdp1(argument.value) == _KIND for argument in call.args)


def local(call: cst.Call, ctx: PlannedContext) -> Fix:
    """What becomes of a context of this kind."""
    try:
        return _by_rank(call, ctx)
    except NotStatic as undecided:
        return _without_counterpart(call, ctx, str(undecided))


def block_of(call: cst.Call, ctx: Context) -> tuple[cst.With, cst.WithItem]:
    """The `with` that enters this context, and no other of FSDP1's, and the context's place in it."""
    item = ctx.parent(call)
    block = ctx.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(item, cst.WithItem) or not isinstance(block, cst.With):
        raise NotStatic("it is not entered by a `with` of its own")
    if not isinstance(block.body, cst.IndentedBlock) or item.asname is not None or _shares(block, item, ctx):
        raise NotStatic("it shares its `with`")
    if _runs_more(block, ctx):
        raise NotStatic("it is around what its function yields to")
    return block, item


def _shares(block: cst.With, item: cst.WithItem, ctx: Context) -> bool:
    """Whether another context can be one of FSDP1's, or of the program's own, which may read or set state dicts."""
    others = [callee(each.item) for each in block.items if each is not item]
    return any(not (ctx.dotted(each) or "").startswith("torch.") or ctx.fsdp1(each) is not None for each in others)


def _runs_more(block: cst.With, ctx: Context) -> bool:
    """Whether a context of the program's own, `with whole(model):`, yields in it to code that reads a state dict."""
    if not any(isinstance(node, cst.Yield) and ctx.scope(node) is ctx.scope(block) for node in ctx.inside(block.body)):
        return False
    for where, call in ctx.callers(block):
        item = where.parent(call)
        around = where.parent(item) if isinstance(item, cst.WithItem) else None
        if not isinstance(around, cst.With):
            return True
        if any(isinstance(node, cst.Call) and reads_further(node, where) for node in where.inside(around.body)):
            return True
    return False


def _by_rank(call: cst.Call, ctx: PlannedContext) -> Fix:
    """FSDP2's own state dict, of the model and of the optimizer, is each rank's part of it."""
    block, item = block_of(call, ctx)
    if any(argument.star or ctx.fsdp1(argument.value) != _KIND for argument in call.args[1:]):
        raise NotStatic("it has settings of its own")
    model = call.args[0].value
    loads = list(_loads(block, model, ctx))
    loads += _loads_beside(call, block, ctx)
    message = "LOCAL_STATE_DICT goes: each rank saves and loads its part as before"
    if ctx.options.read_fsdp1_files:
        edits, imports = _reading_fsdp1_files(loads, model, ctx)
        message += ", and files of FSDP1 load too"
        hint = "load them on as many ranks as saved them; FSDP1 does not load what the rewritten program saves"
    else:
        edits, imports = _refusing_fsdp1_files(loads, model, ctx)
        message += "; a file that FSDP1 saved is an error"
        hint = "go on from a full checkpoint, or rewrite with --read-fsdp1-files"
    found = finding(CODE, Level.REVIEW, ctx, call, message, hint)
    return Fix([*leave_context(ctx, block, item), *edits], [found], imports)


def _reading_fsdp1_files(
    loads: Sequence[cst.Call], model: cst.BaseExpression, ctx: PlannedContext
) -> tuple[list[Edit], list[Import]]:
    named = [ctx.named(Import(SUPPORT, _function(load, model, ctx)), load) for load in loads]
    pairs = zip(loads, named, strict=True)
    return [Edit(*ctx.bare_span(load), _loaded(load, each.local, model, ctx)) for load, each in pairs], named


def _refusing_fsdp1_files(
    loads: Sequence[cst.Call], model: cst.BaseExpression, ctx: PlannedContext
) -> tuple[list[Edit], list[Import]]:
    """A model that is loaded strictly refuses them by itself; an optimizer takes them over, and fails at its step."""
    unchecked = [load for load in loads if _function(load, model, ctx) != _OF_MODEL or len(load.args) > 1]
    named = [ctx.named(Import(SUPPORT, "refuse_flat_state"), load) for load in unchecked]
    states = [(load.args[0].value, each.local) for load, each in zip(unchecked, named, strict=True)]
    return [Edit(*ctx.span(state), f"{name}({ctx.quote(state)})") for state, name in states], named


def _loads(block: cst.With, model: cst.BaseExpression, ctx: Context) -> Iterator[cst.Call]:
    """The calls in the body that load a file of a rank. Raises NotStatic for what is not seen through."""
    for inner in calls_in(block.body):
        owner = inner.func.value if isinstance(inner.func, cst.Attribute) else None
        is_of_model = owner is not None and ctx.code(owner) == ctx.code(model)
        if (ctx.fsdp1(inner.func) or "").startswith(PREFIX):
            raise NotStatic(f"its body calls `{ctx.code(inner.func)}`")
        if reads_below(inner, ctx):
            raise NotStatic(f"its body calls `{ctx.code(inner.func)}`, which deals in state dicts itself")
        if depends_on_setting(inner, ctx) and not is_of_model:
            raise NotStatic(f"its body calls `{ctx.code(inner.func)}` of something else")
        if any(ctx.code(argument.value) == ctx.code(model) for argument in inner.args):
            raise NotStatic(f"its body passes `{ctx.code(model)}` to other code")
        if owner is not None and _is_load(inner) and (is_of_model or _model_of(owner, inner, model, ctx) is not None):
            yield inner


def _loads_beside(call: cst.Call, block: cst.With, ctx: Context) -> Iterator[cst.Call]:
    """Where the same function loads, outside of such contexts, the optimizer whose state is saved in this one."""
    scope = ctx.scope(call)
    functions = [each.func for each in calls_in(block.body) if not each.args]
    saved = {ctx.code(f.value) for f in functions if isinstance(f, cst.Attribute) and f.attr.value == "state_dict"}
    before = [
        other
        for other in ctx.calls(scope)
        if ctx.fsdp1(other.func) == CONTEXT and is_local(other, ctx) and ctx.span(other)[0] < ctx.span(call)[0]
    ]
    if before:
        return
    for load in ctx.calls(scope):
        owner = load.func.value if isinstance(load.func, cst.Attribute) else None
        if owner is None or not _is_load(load) or ctx.code(owner) not in saved:
            continue
        is_inside = any(isinstance(outer, cst.With) and _enters(outer, ctx) for outer in ctx.ancestors(load))
        if not is_inside and _model_of(owner, load, call.args[0].value, ctx) is not None:
            yield load


def _enters(block: cst.With, ctx: Context) -> bool:
    return any(isinstance(item.item, cst.Call) and ctx.fsdp1(item.item.func) == CONTEXT for item in block.items)


def _is_load(call: cst.Call) -> bool:
    is_one = isinstance(call.func, cst.Attribute) and call.func.attr.value == _LOAD
    return is_one and bool(call.args) and not any(argument.star for argument in call.args)


def _function(load: cst.Call, model: cst.BaseExpression, ctx: Context) -> str:
    owner = cst.ensure_type(load.func, cst.Attribute).value
    return _OF_MODEL if ctx.code(owner) == ctx.code(model) else "load_local_optim_state_dict"


def _loaded(load: cst.Call, function: str, model: cst.BaseExpression, ctx: PlannedContext) -> str:
    owner = cst.ensure_type(load.func, cst.Attribute).value
    given = [ctx.quote(owner)]
    if ctx.code(owner) != ctx.code(model):
        given.insert(0, ctx.code(_model_of(owner, load, model, ctx) or model))
    return f"{function}({', '.join([*given, *(quoted_argument(ctx, each) for each in load.args)])})"


def _model_of(
    optimizer: cst.BaseExpression, load: cst.Call, model: cst.BaseExpression, ctx: Context
) -> cst.BaseExpression | None:
    """The model that an optimizer was made for: the context around it can name another one, which changed nothing.

    Where that is out of sight, `model` of the context, if both come of one constructor call.
    """
    wrapped = {origin.node for origin in ctx.origins(model)}
    for where, node in _made_of(optimizer, ctx):
        if not isinstance(node, (cst.Name, cst.Attribute)) or ModelKind.FSDP not in where.kinds(node):
            continue
        if where.path == ctx.path and ctx.same_meaning(node, load):
            return node
        if wrapped & {each.node for each in where.origins(node)} - {None}:
            return model
    return None


def _made_of(optimizer: cst.BaseExpression, ctx: Context) -> Iterator[tuple[Context, cst.CSTNode]]:
    """What stands in the call that makes an optimizer, and in what its arguments hold."""
    made = [(o.file, o.node) for o in ctx.origins(optimizer) if isinstance(o.node, cst.Call)]
    given = [each for where, call in made for argument in call.args for each in where.origins(argument.value)]
    for where, expression in [*made, *((o.file, o.node) for o in given if o.node is not None)]:
        yield from ((where, node) for node in where.inside(expression))


def _without_counterpart(call: cst.Call, ctx: Context, why: str) -> Fix:
    """Left as it is the call would be a silent no-op: reaching it raises instead."""
    message = f"LOCAL_STATE_DICT has no counterpart in FSDP2 here: {why}"
    stopped = Raise(call, CODE, message, call.args[0].value)
    return left(CODE, Level.MANUAL, ctx, call, message, HINT, [stopped])
