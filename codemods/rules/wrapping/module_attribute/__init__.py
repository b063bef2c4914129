"""**What it does.** Rewrites `model.module` and `model.forward(...)` of a wrapped model into `model` and
`model(...)`, `model._fsdp_wrapped_module` too, and `model._handle.reshard(True)` into `model.reshard()`,
and `model.rank` and `model.world_size` into those of its group: the default one where the model is sharded over all
ranks, else `group_of(model)` of the support module, as `model.process_group` becomes. `model.compute_device` becomes
the device of its parameters, where nothing is offloaded.

**Why.** `fully_shard` shards the module in place: there is no wrapper around it, and no `.module` inside. Its
all-gathers hang on `model(...)`; calling `forward` directly would go past them. That of a part which a policy can have
made a unit (`model.embed.forward(x)`) becomes a call, too: FSDP1's wrapper gathered there.

## Example

```python
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sample(net, batch):
    model = FSDP(net)
    return model.forward(batch), model.module.config
```

## Use instead

```python
from torch.distributed.fsdp import fully_shard


def sample(net, batch):
    model = fully_shard(net)
    return model(batch), model.config
```

## Fix safety

Done where the model is seen to be an FSDP model. Where it can be a DDP model too, whose `.module` has to stay, or is
an attribute of an object that is not seen, `unwrap(model)` of the support module decides at run time, once in a
function that asks several times; in a program that compiles a model it is `unwrap_compiled(model)`, as what
`torch.compile` gives is no FSDP2 model itself. Where a choice reads `.module` only without FSDP (`model.net if
use_fsdp else model.module.net`), or for the flag that DDP's model is made by, it is another wrapper's, and stays. A
choice by `hasattr(model, "module")` whose two sides say the same of the model becomes the one without, unless DDP's
models come there.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import libcst as cst

from codemods.api import (
    FSDP_MODULE,
    SUPPORT,
    Context,
    Edit,
    Fix,
    Import,
    Level,
    ModelKind,
    NotStatic,
    Origin,
    Rule,
    finding,
    replaced,
)
from codemods.plan import PlannedContext
from codemods.reading.code.enclosing import call_by, enclosing, is_self, upward
from codemods.reading.code.program import may_be_models_own, sets_on_itself
from codemods.reading.code.words import last_name, words
from codemods.reading.edits.layout import insertion, removal
from codemods.reading.edits.negation import none_test
from codemods.reading.models.class_layout import sharded_classes
from codemods.reading.models.makeup import makeup
from codemods.reading.models.parts import wrapped_around
from codemods.reading.units.predicates import class_policies
from codemods.reading.wrappers.beside_fsdp2 import without_wrappers_branch
from codemods.reading.wrappers.ddp import is_ddps_alone, is_on_ddp_way
from codemods.reading.wrappers.engines import is_another_engines
from codemods.reading.wrappers.inner_choice import choice_of_inner
from codemods.reading.wrappers.inner_module import is_asked_for
from codemods.reading.wrappers.steps import Step, is_of_others, is_told_apart_in_loop, step_at
from codemods.reading.wraps.manual import argument_name
from codemods.reading.wraps.process_groups import group_of, is_over_all
from codemods.tables.names import WRAPPER

from .one_local import local_of
from .wrapped_way import is_on_wrapped_way

CODE = "FM104"

_OF_GROUP = {"rank": "get_rank", "world_size": "get_world_size"}


def fix(node: cst.Attribute, ctx: PlannedContext) -> Fix | None:
    """Of `model.module`, the `model.forward` of a call, and what else is read of the wrapper."""
    name = node.attr.value
    if name == "reshard":
        return _reshard(node, ctx) if _is_of_handle(node, ctx) and ctx.plan.migrates else None
    if name in _OF_GROUP:
        return _of_group(node, ctx) if _is_read(node, ctx) and not may_be_models_own(ctx, node.value, name) else None
    if name == "process_group":
        return _group(node, ctx) if _is_read(node, ctx) else None
    if name == "compute_device":
        return _device(node, ctx) if _is_read(node, ctx) and not ctx.mentions("CPUOffload") else None
    if name not in {"module", "forward", "_fsdp_wrapped_module"} or not _is_of_wrapper(node, ctx):
        return None
    model, held = ctx.code(node.value), ctx.kinds(node.value)
    branch = without_wrappers_branch(node, ctx) if name == "_fsdp_wrapped_module" else None
    if branch is not None:
        return Fix([branch], [finding(CODE, Level.REWRITTEN, ctx, node, f"no model has `{name}`: the branch goes")])
    given_up = choice_of_inner(node, ctx)
    if given_up is not None:
        choice, kept = given_up
        message = f"`{model}.{name}` becomes `{model}`, as where there is no wrapper"
        place = ctx.bare_span(choice) if isinstance(choice, cst.IfExp) else ctx.span(choice)
        return Fix([Edit(*place, ctx.quote(kept))], [finding(CODE, Level.REWRITTEN, ctx, node, message)])
    step = step_at(node, ctx)
    if is_told_apart_in_loop(node, ctx) and (step is None or not _is_told_apart(step, ctx)):
        return Fix(findings=[finding(CODE, Level.REWRITTEN, ctx, node, _of_others(node, ctx))])
    if step is not None and (step.recursion is not None or not _is_told_apart(step, ctx)):
        return _step(step, node, ctx)
    is_choice = _may_be_another_wrappers(held, node, ctx) or is_on_ddp_way(node, ctx)
    if name == "module" and is_choice and not is_on_wrapped_way(node.value, ctx):
        unwrap = "unwrap_compiled" if ctx.wrapping.compiles(ctx.path) else "unwrap"
        item = ctx.named(Import(SUPPORT, unwrap), node)
        call = f"{item.local}({ctx.quote(node.value)})"
        local = local_of(held, node, ctx)
        edits = [Edit(*ctx.bare_span(node), local.name if local is not None else call)]
        if local is not None and local.uses[0] is node:
            edits.append(insertion(ctx, local.statement, [f"{local.name} = {call}"]))
        message = f".module becomes {unwrap}, a support function"
        return Fix(edits, [finding(CODE, Level.REWRITTEN, ctx, node, message)], [item])
    statement = _set_to_itself(node, ctx)
    gone = removal(ctx, statement) if statement else Edit(ctx.span(node.value)[1], ctx.span(node.attr)[1], "")
    return Fix([gone], [finding(CODE, Level.REWRITTEN, ctx, node, f"`{model}.{name}` becomes `{model}`")])


def _is_of_wrapper(node: cst.Attribute, ctx: PlannedContext) -> bool:
    if node.attr.value == "forward":
        if call_by(node, ctx) is None:
            return False
    elif isinstance(ctx.parent(node), cst.AssignTarget) or _is_own(node, ctx):
        return False
    elif is_asked_for(node, ctx):
        return choice_of_inner(node, ctx) is not None
    elif node.attr.value == "module" and _is_another_wrappers(node, ctx):
        return False
    if is_another_engines(node, ctx):
        return False
    if ModelKind.FSDP in ctx.kinds(node.value) or (node.attr.value == "forward" and _may_be_unit(node.value, ctx)):
        return True
    only_fsdp1_has_it = node.attr.value == "_fsdp_wrapped_module" and ctx.plan.migrates
    return only_fsdp1_has_it and not sets_on_itself(ctx, "_fsdp_wrapped_module")


def _may_be_unit(part: cst.BaseExpression, ctx: PlannedContext) -> bool:
    """Whether it is a part of an FSDP model that a policy can have made a unit, which gathered in its own `forward`."""
    if not isinstance(part, (cst.Attribute, cst.Name, cst.Subscript)) or is_self(part, ctx):
        return False
    drafts = [ctx.plan.wraps[call].draft for _, call in ctx.wrapping.calls(ctx.path) if call in ctx.plan.wraps]
    has_units = any(draft is None or draft.selector is not None for draft in drafts)
    return has_units and (
        _is_of_sharded_class(part, ctx) or _can_be_picked(part, ctx) or wrapped_around(part, ctx) is not None
    )


def _is_of_sharded_class(part: cst.BaseExpression, ctx: Context) -> bool:
    """`self.blocks[0]` in a method of a model, where the blocks are of a class that a wrap shards as well."""
    owner = enclosing(ctx, part, cst.ClassDef)
    wraps = ctx.wrapping.calls(ctx.path)
    sharded = {each for where, call in wraps for _, each in sharded_classes(where, call)}
    if owner not in sharded:
        return False
    named = {name for where, call in wraps for name in _named_by_policy(where, call)}
    made = [(origin.file, origin.node) for origin in ctx.origins(part) if isinstance(origin.node, cst.Call)]
    if any(where.dotted(call.func) in named for where, call in made):
        return True
    return any(kind.node in sharded for where, call in made for kind in where.origins(call.func))


def _can_be_picked(part: cst.BaseExpression, ctx: Context) -> bool:
    """A layer that a model's own class runs, where the policy goes by more than classes, as one by size does."""
    owner = enclosing(ctx, part, cst.ClassDef)
    models = [makeup(*wrap) for wrap in ctx.wrapping.calls(ctx.path) if _goes_by_more_than_classes(*wrap)]
    around = [model for model in models if any(each is owner for _, each in model.classes)]
    layers = {each for model in around for _, each in model.classes}
    return any(
        (where.dotted(call.func) or "").startswith("torch.nn.")
        or any(kind.node in layers for kind in where.origins(call.func))
        for where, call in ((o.file, o.node) for o in (ctx.origins(part) if around else ()))
        if isinstance(call, cst.Call)
    )


def _goes_by_more_than_classes(ctx: Context, call: cst.Call) -> bool:
    given = [a.value for a in call.args if argument_name(a) == "auto_wrap_policy"]
    return any(not o.is_none and not _is_of_classes(o) for value in given for o in ctx.origins(value))


def _is_of_classes(policy: Origin) -> bool:
    try:
        return bool(class_policies(policy))
    except NotStatic:
        return False


def _named_by_policy(ctx: Context, call: cst.Call) -> set[str]:
    """The names in a policy, among them a library's classes: `torch.nn.Embedding`."""
    given = [a.value for a in call.args if argument_name(a) == "auto_wrap_policy"]
    policies = [(o.file, o.node) for value in given for o in ctx.origins(value) if o.node is not None]
    inner = [(where, node) for where, policy in policies for node in where.inside(policy)]
    names = (where.dotted(node) for where, node in inner if isinstance(node, (cst.Attribute, cst.Name)))
    return {name for name in names if name is not None}


def _may_be_another_wrappers(held: frozenset[ModelKind], node: cst.Attribute, ctx: Context) -> bool:
    """A DDP model, or the attribute of an object that is not seen: an average and others have a `.module` as well."""
    is_unseen = ModelKind.UNKNOWN in held and isinstance(node.value, cst.Attribute)
    if is_unseen and not is_self(cst.ensure_type(node.value, cst.Attribute).value, ctx):
        return True
    return ModelKind.DDP in held or _is_chosen(node, ctx) or _is_wrapped_by_library(node.value, ctx)


_DDP = frozenset({"ddp", "distributed", "parallel", "parallelize"})


def _is_wrapped_by_library(model: cst.BaseExpression, ctx: Context) -> bool:
    """`create_ddp_model(model)` of detectron2, in a script beside the one that wraps."""
    calls = [(origin.file, origin.node) for origin in ctx.origins(model) if isinstance(origin.node, cst.Call)]
    others = [call for where, call in calls if not where.runs(call) and not _is_torchs(where.dotted(call.func))]
    return any(words(last_name(call.func)) & _DDP for call in others)


def _is_torchs(dotted: str | None) -> bool:
    return dotted is not None and dotted.startswith("torch.")


def _is_read(node: cst.Attribute, ctx: Context) -> bool:
    """What a wrapped model has is read; in a model's own methods it is the model's."""
    if ModelKind.FSDP not in ctx.kinds(node.value) or is_self(node.value, ctx):
        return False
    return not isinstance(ctx.parent(node), cst.AssignTarget)


def _is_of_handle(node: cst.Attribute, ctx: Context) -> bool:
    """`model._handle.reshard(True)`: what FSDP1 kept of a unit's parameters, an FSDP2 model does itself."""
    call = ctx.parent(node)
    if not isinstance(call, cst.Call) or call.func is not node or node.attr.value != "reshard":
        return False
    given = [ctx.code(argument.value) for argument in call.args]
    return isinstance(node.value, cst.Attribute) and node.value.attr.value == "_handle" and given in ([], ["True"])


def _is_own(node: cst.Attribute, ctx: Context) -> bool:
    """`self.module` is a model's own: under FSDP1 its methods ran on the model inside of the wrapper."""
    named_so = node.attr.value == "module" or sets_on_itself(ctx, node.attr.value)
    owner = enclosing(ctx, node, cst.ClassDef) if named_so and is_self(node.value, ctx) else None
    return owner is not None and not any(ctx.fsdp1(base.value) == WRAPPER for base in owner.bases)


def _is_another_wrappers(node: cst.Attribute, ctx: Context) -> bool:
    return _is_on_other_way(node, ctx) or is_ddps_alone(node, ctx) or is_of_others(node, ctx)


def _is_on_other_way(node: cst.Attribute, ctx: Context) -> bool:
    """`model.module.net` of `model.net if fsdp is not None else model.module.net`: it is another wrapper's."""
    for inner, outer in upward(ctx, node):
        if isinstance(outer, cst.IfExp) and outer.orelse is inner:
            (start, end), (first, last) = ctx.span(inner), (ctx.span(node.value)[1], ctx.span(node)[1])
            is_same = ctx.code(outer.body) == ctx.text[start:first] + ctx.text[last:end]
            return is_same and _says_fsdp(outer.test)
    return False


def _says_fsdp(test: cst.BaseExpression) -> bool:
    """`use_fsdp`, `args.fsdp`, and `fsdp_config is not None`."""
    asked = none_test(test)
    if asked is not None:
        return asked[1] and _says_fsdp(asked[0])
    return isinstance(test, (cst.Name, cst.Attribute)) and "fsdp" in words(last_name(test))


def _is_chosen(node: cst.Attribute, ctx: Context) -> bool:
    """`model.module.eval() if state.is_ddp else model.eval()`: what the condition knows of the model is not seen."""
    choice = enclosing(ctx, node, cst.IfExp)
    if choice is None or "FSDP" in ctx.code(choice.test) or _names_wrapper(choice.test, ctx):
        return False
    (start, end), (first, last) = ctx.span(choice.body), ctx.span(node)
    return (
        start <= first < end
        and ctx.code(choice.orelse) == ctx.text[start:first] + ctx.code(node.value) + ctx.text[last:end]
    )


def _names_wrapper(test: cst.BaseExpression, ctx: Context) -> bool:
    return any(isinstance(each, (cst.Name, cst.Attribute)) and ctx.fsdp1(each) == WRAPPER for each in ctx.inside(test))


def _set_to_itself(node: cst.Attribute, ctx: Context) -> cst.CSTNode | None:
    """`m.forward = m.module.forward`, alone on its line, and not what a loop steps on by."""
    line = enclosing(ctx, node, cst.SimpleStatementLine)
    small = line.body[0] if line is not None and len(line.body) == 1 else None
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return None
    block = enclosing(ctx, small, cst.IndentedBlock)
    if block is not None and isinstance(ctx.parent(block), cst.While):
        return None
    start, end = (ctx.span(each)[1] for each in (node.value, node))
    value = ctx.text[ctx.span(small.value)[0] : start] + ctx.text[end : ctx.span(small.value)[1]]
    return line if value == ctx.code(small.targets[0].target) else None


def _step(step: Step, node: cst.Attribute, ctx: Context) -> Fix:
    """Left as it is for other wrappers; classes that are written in the test are told apart there (FM105)."""
    found = [finding(CODE, Level.REWRITTEN, ctx, node, _of_others(node, ctx))]
    if _is_told_apart(step, ctx):
        return Fix(findings=found)
    item, test = ctx.named(FSDP_MODULE, node), step.statement.test
    asked = f"isinstance({step.model}, {item.local})"
    if _is_last_of_several(step, node, ctx):
        line = ctx.parent(ctx.parent(node) or node) or node
        return Fix([insertion(ctx, line, [f"if {asked}:", f"{ctx.indent}break"])], found, [item])
    held = f"({ctx.quote(test)})" if _is_either(test) else ctx.quote(test)
    return Fix([Edit(*ctx.bare_span(test), f"{held} and not {asked}")], found, [item])


def _of_others(node: cst.Attribute, ctx: Context) -> str:
    return f"`{ctx.code(node)}` is asked of other wrappers alone: an FSDP2 model has none, and it would not end"


def _is_last_of_several(step: Step, node: cst.Attribute, ctx: Context) -> bool:
    """Whether more is done for each wrapper, and then the step is made: for an FSDP2 model that is done once."""
    loop, line = step.statement, ctx.parent(ctx.parent(node) or node)
    if not isinstance(loop, cst.While) or loop.orelse is not None or len(loop.body.body) < 2:
        return False
    return isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 and loop.body.body[-1] is line


def _is_told_apart(step: Step, ctx: Context) -> bool:
    """Whether FSDP1's class stands in the test, alone or for a recursion, and goes from it."""
    classes = step.classes
    if isinstance(classes, cst.Tuple):
        return step.recursion is not None and any(ctx.fsdp1(each.value) == WRAPPER for each in classes.elements)
    return classes is not None and ctx.fsdp1(classes) == WRAPPER


def _is_either(test: cst.BaseExpression) -> bool:
    return isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or) and not test.lpar


def _reshard(node: cst.Attribute, ctx: Context) -> Fix:
    handle, call = cst.ensure_type(node.value, cst.Attribute), cst.ensure_type(ctx.parent(node), cst.Call)
    change = Edit(ctx.span(handle.value)[1], ctx.span(call)[1], ".reshard()")
    message = "reshard of a handle becomes reshard of the model"
    return Fix([change], [finding(CODE, Level.REWRITTEN, ctx, call, message)])


def _of_group(node: cst.Attribute, ctx: Context) -> Fix:
    """The rank in a model's group, or its size: nothing else that the model can be has such an attribute."""
    dist = ctx.named(Import("torch.distributed", alias="dist"), node)
    group, imports = ("", []) if is_over_all(ctx, node.value) else group_of(ctx, node.value, node)
    text = f"{dist.local}.{_OF_GROUP[node.attr.value]}({group})"
    message = f"{node.attr.value} of the wrapper becomes that of its group"
    return replaced(CODE, ctx, node, text, message, [dist, *imports])


def _group(node: cst.Attribute, ctx: Context) -> Fix:
    text, imports = group_of(ctx, node.value, node)
    return replaced(CODE, ctx, node, text, "process_group of the wrapper becomes that of the model's mesh", imports)


def _device(node: cst.Attribute, ctx: Context) -> Fix:
    text = f"next({ctx.quote(node.value)}.parameters()).device"
    return replaced(CODE, ctx, node, text, "compute_device of the wrapper becomes that of its parameters")


RULE = Rule(
    CODE,
    "wrapped-module-attribute",
    __doc__,
    nodes=(cst.Attribute,),
    fix=fix,
    methods=("module", "forward", "_fsdp_wrapped_module", "process_group", "reshard", "compute_device", *_OF_GROUP),
)
