"""A policy of classes that a function returns beside other settings, always the same: the loop names the classes.

`precision, policy, strategy = get_settings(args, Block)` gives no units any more, `isinstance(module, Block)` asks.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, Edit, NotStatic, Origin
from codemods.reading.dead import assignment_only_for
from codemods.reading.enclosing import contains
from codemods.reading.layout import comments_in, lost_comments
from codemods.reading.optional_results import arguments_given, function_only_for
from codemods.reading.policies import class_elements, policy_classes

from .draft import Draft, UnitSelector
from .in_place import mentions
from .policy_inline import asks_for_classes, units_in_a_list
from .unit_classes import can_be_container, can_be_root, can_nest


def returned_in_tuple(value: cst.BaseExpression, draft: Draft) -> bool:
    """Whether it is such a policy; then the selector is set, and the tuple loses its place on both sides."""
    taken = _taken_out(value, draft)
    if taken is None or draft.ignores or draft.float32_class or draft.is_function:
        return False
    call, target, unpacked = taken
    ctx = draft.file
    function = function_only_for(ctx, call)
    returned = _only_tuple(ctx, function) if function is not None else None
    if function is None or returned is None or len(returned.elements) != len(unpacked.elements):
        return False
    element = returned.elements[unpacked.elements.index(target)]
    made, line = _made_for(ctx, element.value)
    state = draft.state()
    try:
        origin = Origin(ctx, made)
        classes = policy_classes(origin)
        named = _classes_at(ctx, call, function, classes, draft)
        if made in draft.left or made in draft.asked or asks_for_classes(origin):
            return False
        texts = [ctx.quote(each) for each in named]
        several = f"({', '.join(texts)})" if len(texts) > 1 else texts[0]
        draft.selector = units_in_a_list(ctx, classes, draft, named) or UnitSelector(
            f"isinstance({{module}}, {several})",
            nested=can_nest(ctx, classes),
            may_be_root=can_be_root(draft, ctx, classes),
            may_be_container=can_be_container(ctx, classes),
        )
    except NotStatic:
        draft.restore(state)
        return False
    draft.inlined.add(made)
    if line is not None:
        draft.dead.append(line)
        draft.unit_comments += lost_comments(ctx, line)
    draft.edits += [(ctx, _without(ctx, *each)) for each in ((unpacked, target), (returned, element))]
    return True


def _taken_out(value: cst.BaseExpression, draft: Draft) -> tuple[cst.Call, cst.BaseElement, cst.Tuple] | None:
    """The call, the element and the tuple of `precision, policy = get_settings()`, for this use alone."""
    ctx = draft.file
    scope = ctx.scope(draft.call)
    if not isinstance(value, cst.Name) or not isinstance(scope, cst.FunctionDef):
        return None
    targets, uses = mentions(ctx, scope, value.value)
    if len(targets) != 1 or uses != [value]:
        return None
    element = ctx.parent(targets[0])
    unpacked = ctx.parent(element) if isinstance(element, cst.Element) else None
    assign = ctx.parent(cst.ensure_type(ctx.parent(unpacked), cst.AssignTarget)) if unpacked is not None else None
    if not isinstance(assign, cst.Assign) or not isinstance(assign.value, cst.Call):
        return None
    if not isinstance(unpacked, cst.Tuple) or not isinstance(element, cst.Element) or not _is_plain(ctx, unpacked):
        return None
    return assign.value, element, unpacked


def _only_tuple(ctx: Context, function: cst.FunctionDef) -> cst.Tuple | None:
    """What the one `return` of a function gives."""
    inside = ctx.inside(function.body)
    returned = [node for node in inside if isinstance(node, cst.Return)]
    value = returned[0].value if len(returned) == 1 else None
    is_generator = any(isinstance(node, cst.Yield) for node in inside)
    is_own = value is not None and ctx.scope(value) is function
    return value if is_own and not is_generator and isinstance(value, cst.Tuple) and _is_plain(ctx, value) else None


def _is_plain(ctx: Context, several: cst.Tuple) -> bool:
    """Whether an element can go: there are others, and nothing is said between them."""
    if len(several.elements) == 2 and isinstance(several.elements[-1].comma, cst.Comma):
        return False  # one element and a comma are a tuple still
    shown = all(isinstance(each, cst.Element) for each in several.elements)
    return shown and len(several.elements) > 1 and not comments_in(ctx.code(several))


def _made_for(ctx: Context, element: cst.BaseExpression) -> tuple[cst.BaseExpression, cst.CSTNode | None]:
    """What makes the policy, and the statement that names it for this use alone."""
    bound = ctx.bound(element) if isinstance(element, cst.Name) else None
    if bound is None or len(bound) != 1 or bound[0][0].path != ctx.path:
        return element, None
    made = bound[0][1]
    line = assignment_only_for(ctx, made, lambda use: use is element)
    return (made, line) if line is not None else (element, None)


def _classes_at(
    ctx: Context, call: cst.Call, function: cst.FunctionDef, classes: cst.BaseExpression, draft: Draft
) -> list[cst.BaseExpression]:
    """The classes as the constructor call would name them. Raises NotStatic where one is another thing there."""
    given = arguments_given(call, function)
    elements = class_elements(classes)
    if not elements or given is None:
        raise NotStatic("auto_wrap_policy of classes that are not shown")
    params = {param.name.value for param in function.params.params}
    shown = [element for element in elements if isinstance(element, (cst.Name, cst.Attribute))]
    named = [given.get(each.value, each) if isinstance(each, cst.Name) else each for each in shown]
    for element in shown:
        if isinstance(element, cst.Name) and element.value in params:
            targets, uses = mentions(ctx, function, element.value)
            inside = [use for use in uses if contains(ctx, function.body, use)]
            if element.value not in given or targets or not all(contains(ctx, classes, use) for use in inside):
                raise NotStatic("auto_wrap_policy of a parameter that is read elsewhere")
    is_same = all(isinstance(each, (cst.Name, cst.Attribute)) and ctx.same_meaning(each, draft.call) for each in named)
    if len(shown) < len(elements) or not is_same:
        raise NotStatic("auto_wrap_policy of classes that have other names at the call")
    return named


def _without(ctx: Context, several: cst.Tuple, element: cst.BaseElement) -> Edit:
    """A tuple without one of its elements, and its comma."""
    at = several.elements.index(element)
    if at + 1 < len(several.elements):
        return Edit(ctx.span(element.value)[0], ctx.span(several.elements[at + 1].value)[0], "")
    return Edit(ctx.span(several.elements[at - 1].value)[1], ctx.span(element.value)[1], "")
