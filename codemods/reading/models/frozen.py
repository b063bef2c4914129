"""Modules that are seen to be frozen: `net.encoder.requires_grad_(False)` in the function that wraps them."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.shapes import called_on, class_test, keywords
from codemods.reading.code.words import is_name, last_name
from codemods.reading.wraps.wrapped import wrapped_module
from codemods.tables.modules import GIVE_IT_BACK


def ignores_only_frozen(ctx: Context, model: cst.BaseExpression) -> bool:
    """Whether all that the constructor calls of a model ignore is frozen, in each function that makes one."""
    calls = [(origin.file, origin.node) for origin in ctx.origins(model) if isinstance(origin.node, cst.Call)]
    if any(argument.star == "**" for _, call in calls for argument in call.args):
        return False
    ignoring = [(where, call) for where, call in calls if _ignored(call)]
    return bool(ignoring) and all(ignores_frozen(where, call) for where, call in ignoring)


def ignores_frozen(ctx: Context, call: cst.Call) -> bool:
    """Whether a constructor call ignores something, and nothing but what is frozen."""
    ignored = _ignored(call)
    return bool(ignored) and all(_is_frozen(ctx, call, value) for value in ignored)


def _ignored(call: cst.Call) -> list[cst.BaseExpression]:
    return [value for name, value in keywords(call.args).items() if name.startswith("ignored_")]


def is_frozen(ctx: Context, model: cst.BaseExpression) -> bool:
    """Whether each constructor call that makes a model is seen to wrap a module with no parameter that is trained."""
    calls = [(origin.file, origin.node) for origin in ctx.origins(model)]
    return bool(calls) and all(isinstance(call, cst.Call) and _wraps_frozen(where, call) for where, call in calls)


def _wraps_frozen(ctx: Context, call: cst.Call) -> bool:
    """A module that nothing else is done to: `net.add_adapter(lora)` gives one parameters that are trained."""
    module = wrapped_module(call)
    if module is None or ctx.code(module) not in {ctx.code(frozen) for frozen in _frozen_in(ctx, call)}:
        return False
    name = ctx.code(module)
    for other in ctx.calls(ctx.scope(call)):
        method = other.func if isinstance(other.func, cst.Attribute) else None
        if method is not None and ctx.code(told_to(method.value)) == name and method.attr.value not in _KEEPS:
            return False
        if other is not call and any(ctx.code(argument.value) == name for argument in other.args):
            return False
    return True


def _is_frozen(ctx: Context, call: cst.Call, value: cst.BaseExpression) -> bool:
    if all(origin.node is not None and _takes_frozen(origin.file, origin.node) for origin in ctx.origins(value)):
        return True
    held = _held(ctx, value)
    frozen = {ctx.code(module) for module in _frozen_in(ctx, call)}
    frozen |= {ctx.code(each) for each in held if not _is_thawed_in(ctx, call) and _is_made_frozen(ctx, each)}
    return ctx.code(value) in frozen or (bool(held) and all(ctx.code(each) in frozen for each in held))


def _takes_frozen(ctx: Context, node: cst.CSTNode) -> bool:
    """`[p for p in model.parameters() if not p.requires_grad]`, and `[m for m in model.modules() if isinstance(m, C)]`
    of a class that trains nothing.
    """
    if not isinstance(node, (cst.ListComp, cst.SetComp, cst.GeneratorExp)) or not isinstance(node.elt, cst.Name):
        return False
    tests = [each.test for each in node.for_in.ifs]
    if node.for_in.inner_for_in is not None:
        return False
    asked = (found for each in tests if (found := class_test(each, ctx)) is not None)
    if any(ctx.code(module) == node.elt.value and _makes_frozen(ctx, kind) for module, kind in asked):
        return True
    return f"not {node.elt.value}.requires_grad" in map(ctx.code, tests)


def _makes_frozen(ctx: Context, kind: cst.BaseExpression) -> bool:
    """Whether a class of the program keeps no module, and has no parameters but by `requires_grad=False`."""
    classes = [(origin.file, origin.node) for origin in ctx.origins(kind)]
    return bool(classes) and all(
        isinstance(node, cst.ClassDef) and _is_all_frozen(where, node) for where, node in classes
    )


def _is_all_frozen(ctx: Context, made: cst.ClassDef) -> bool:
    inside = list(ctx.inside(made.body))
    names = {node.name.value for node in inside if isinstance(node, cst.Param)}
    stores = [node for node in inside if isinstance(node, cst.Assign)]
    kept = [node.value for node in stores if isinstance(node.targets[0].target, cst.Attribute)]
    if any(isinstance(value, cst.Name) and value.value in names for value in kept):
        return False  # what is given can be a module
    calls = [node for node in inside if isinstance(node, cst.Call)]
    makers = [call for call in calls if last_name(call.func)[:1].isupper() or last_name(call.func) == "deepcopy"]
    is_plain = all(ctx.dotted(base.value) == "torch.nn.Module" for base in made.bases)
    return is_plain and all(_is_frozen_parameter(ctx, call) for call in makers)


def _is_frozen_parameter(ctx: Context, call: cst.Call) -> bool:
    flag = keywords(call.args).get("requires_grad")
    return last_name(call.func) == "Parameter" and flag is not None and ctx.code(flag) == "False"


def _is_made_frozen(ctx: Context, parameter: cst.BaseExpression) -> bool:
    """`net.table`, which its class makes by `nn.Parameter(…, requires_grad=False)`."""
    made = [(origin.file, origin.node) for origin in ctx.origins(parameter)]
    return bool(made) and all(isinstance(node, cst.Call) and _is_frozen_parameter(where, node) for where, node in made)


def _held(ctx: Context, value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """`net.encoder` of `[net.encoder]` and of `net.encoder.parameters()`; none where one is not spelled out."""
    origins = ctx.origins(value)
    if len(origins) != 1 or origins[0].file.path != ctx.path:
        return []
    display = origins[0].node
    if isinstance(display, cst.Call):
        read = called_on(display, "parameters")
        return [read] if read is not None else []
    if not isinstance(display, (cst.List, cst.Tuple, cst.Set)) or ctx.scope(display) is not ctx.scope(value):
        return []
    return [element.value for element in display.elements if isinstance(element, cst.Element)]


def _frozen_in(ctx: Context, call: cst.Call) -> Iterator[cst.BaseExpression]:
    """The modules that are frozen whenever the call runs, in its function and above it; none if one is thawed."""
    if _is_thawed_in(ctx, call):
        return
    around = set(ctx.ancestors(call))
    for node, _ in _flags(ctx, call):
        outside = [outer for outer in ctx.ancestors(node) if outer not in around]
        blocks = [outer for outer in outside if isinstance(outer, (cst.BaseCompoundStatement, cst.BaseComp))]
        if ctx.span(node)[0] > ctx.span(call)[0]:
            continue
        if not blocks and isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            yield told_to(node.func.value)
        elif len(blocks) == 1 and isinstance(blocks[0], cst.For):
            read = called_on(blocks[0].iter, "parameters")
            if read is not None and _is_of(ctx, node, blocks[0].target):
                yield read
            elif _is_of(ctx, node, blocks[0].target) and _stays(blocks[0].iter, ctx):
                yield blocks[0].iter


def _stays(modules: cst.BaseExpression, ctx: Context) -> bool:
    """Whether a list is made once, and nothing is put into it where it is gone over, or below."""
    if not isinstance(modules, cst.Name) or len(ctx.bound(modules) or ()) != 1:
        return False
    below = (each for each in ctx.calls(ctx.scope(modules)) if ctx.span(each)[1] > ctx.span(modules)[0])
    return not any(is_name(called_on(each, "append", "extend", "insert"), modules.value) for each in below)


def _is_thawed_in(ctx: Context, call: cst.Call) -> bool:
    return any(flag != "False" for _, flag in _flags(ctx, call))


def _flags(ctx: Context, call: cst.Call) -> list[tuple[cst.Call | cst.Assign, str]]:
    """What the function of a call says of `requires_grad`."""
    statements = [node for node in ctx.inside(ctx.scope(call)) if isinstance(node, (cst.Call, cst.Assign))]
    return [(node, flag) for node in statements if (flag := flag_set(ctx, node)) is not None]


def told_to(module: cst.BaseExpression) -> cst.BaseExpression:
    """`net` of `net.eval().cuda()`, whose methods return what they are called on."""
    while (owner := called_on(module, *_SAME)) is not None:
        module = owner
    return module


_SAME = GIVE_IT_BACK - {"requires_grad_"}
_KEEPS = GIVE_IT_BACK | {"load_state_dict", "named_parameters", "parameters"}
"""Methods that give a module no parameter."""


def flag_set(ctx: Context, node: cst.CSTNode) -> str | None:
    """What `p.requires_grad = …` and `net.requires_grad_(…)` set; None for anything else."""
    if isinstance(node, cst.Call):
        if not isinstance(node.func, cst.Attribute) or node.func.attr.value != "requires_grad_":
            return None
        return ctx.code(node.args[0].value) if node.args else "True"
    if not isinstance(node, cst.Assign):
        return None
    target = node.targets[0].target
    is_set = isinstance(target, cst.Attribute) and target.attr.value == "requires_grad"
    return ctx.code(node.value) if is_set else None


def _is_of(ctx: Context, node: cst.CSTNode, parameter: cst.BaseExpression) -> bool:
    """Whether the loop's own variable is what is frozen."""
    told = node.func if isinstance(node, cst.Call) else cst.ensure_type(node, cst.Assign).targets[0].target
    return isinstance(told, cst.Attribute) and ctx.code(told.value) == ctx.code(parameter)
