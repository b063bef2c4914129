"""A policy that the wrapping function is given becomes the units themselves: `shard(model, units=model.blocks)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from codemods.api import Context, Edit, NotStatic, Origin
from codemods.reading.code.enclosing import is_label
from codemods.reading.units.policies import policy_call
from codemods.reading.values.choices import Place

from ..draft import Draft, UnitSelector
from .condition import own_list

_ARGUMENT = "auto_wrap_policy"


def hand_in_units(value: cst.BaseExpression, draft: Draft, of_classes: Callable[[Origin, cst.Name], str]) -> None:
    """Set the selector, and write the units where the policies are made. Raises NotStatic where a call of the function
    is not seen, or none of them names a list of layers.

    `of_classes` gives the test of `{module}` for a policy of one class, none of whose modules is the model or lies in
    another one.
    """
    ctx, function = draft.file, draft.file.scope(draft.call)
    if not isinstance(value, cst.Name) or not isinstance(draft.module, cst.Name) or draft.ignores:
        raise NotStatic("auto_wrap_policy is no parameter")
    if not isinstance(function, cst.FunctionDef) or function.decorators or draft.float32_class:
        raise NotStatic("auto_wrap_policy is no parameter")
    params = [*function.params.params, *function.params.kwonly_params]
    param = next((each for each in params if each.name.value == value.value), None)
    if param is None or param.default is not None or param.annotation is not None:
        raise NotStatic("auto_wrap_policy is no parameter")
    if any(name is not value for name in _named(ctx, function.body, value.value)):
        raise NotStatic("auto_wrap_policy is read elsewhere")
    if any(ctx.span(name)[0] < ctx.span(draft.call)[0] and _is_bound(ctx, name) for name in _models(draft, function)):
        raise NotStatic("the model is another one than the function is given")
    name = draft.fresh("units", "fsdp_units")
    found = list(_units(draft, function, value.value, draft.module.value, of_classes))
    if not any(is_list for *_, is_list in found):
        raise NotStatic("no call names a list of layers")
    for where, node, text, is_list in found:
        argument = cst.ensure_type(where.parent(node), cst.Arg)
        (draft.definitions if is_list else draft.inlined).add(node)
        draft.keeps.discard(node)
        draft.edits.append((where, Edit(*where.span(node), text)))
        draft.edits.append((where, Edit(*where.span(cst.ensure_type(argument.keyword, cst.Name)), name)))
    draft.edits.append((ctx, Edit(*ctx.span(param.name), name)))
    draft.selector = UnitSelector("", nested=False, may_be_root=False, units=name)


def _units(
    draft: Draft, function: cst.FunctionDef, policy: str, model: str, of_classes: Callable[[Origin, cst.Name], str]
) -> Iterator[tuple[Context, cst.BaseExpression, str, bool]]:
    """What each call gives for the policy, the units that this means there, and whether they are a list."""
    ctx = draft.file
    calls = [where.parent(name) for where, name in ctx.references_to(function) if not _is_import(where, name)]
    models = {call: given for _, call, given in ctx.passed_to(draft.call, model)}
    policies: dict[cst.CSTNode, Place] = {
        call: (where, given) for where, call, given in ctx.passed_to(draft.call, policy)
    }
    if not calls or set(calls) != policies.keys() or set(calls) != models.keys():
        raise NotStatic("a call of the function is not seen")
    for call, (where, given) in policies.items():
        argument, root = where.parent(given), models[cst.ensure_type(call, cst.Call)]
        if not isinstance(argument, cst.Arg) or argument.keyword is None or not isinstance(root, cst.Name):
            raise NotStatic("auto_wrap_policy is passed by its place")
        made, arguments = policy_call(Origin(where, given))
        function_of = next((each.value for each in arguments if each.keyword is not None), None)
        if made == "lambda_auto_wrap_policy" and isinstance(function_of, cst.Lambda):
            listed = own_list(where, function_of, root.value)
            if listed is None or where.code(getattr(listed, "value", listed)) != root.value:
                raise NotStatic("auto_wrap_policy asks for more than a list of the model")
            yield where, given, where.quote(listed), True
        else:
            test = of_classes(Origin(where, given), root).format(module="module")
            yield where, given, f"[module for module in {root.value}.modules() if {test}]", False


def _named(ctx: Context, body: cst.CSTNode, name: str) -> list[cst.Name]:
    names = (node for node in ctx.inside(body) if isinstance(node, cst.Name) and node.value == name)
    return [node for node in names if not is_label(node, ctx)]


def _models(draft: Draft, function: cst.FunctionDef) -> list[cst.Name]:
    return _named(draft.file, function.body, cst.ensure_type(draft.module, cst.Name).value)


def _is_bound(ctx: Context, name: cst.Name) -> bool:
    """Whether it is bound there; `model = FSDP(model)` binds it behind the call."""
    target = ctx.parent(name)
    statement = ctx.parent(target) if isinstance(target, cst.AssignTarget) else None
    if not isinstance(statement, cst.Assign):
        return not isinstance(target, (cst.Arg, cst.Attribute))
    return not any(isinstance(node, cst.Call) and ctx.fsdp1(node.func) for node in [statement.value])


def _is_import(where: Context, name: cst.CSTNode) -> bool:
    return any(isinstance(node, (cst.ImportFrom, cst.Import)) for node in where.ancestors(name))
