"""`auto_wrap_policy`: which modules become units.

FSDP1 hands each module to a policy and never wraps the root by it; FSDP2 has no policies: a loop over
`model.modules()` calls `fully_shard` on each module that is to be a unit, children before parents.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

import libcst as cst

from codemods.api import Context, Edit, NotStatic, Origin
from codemods.reading.code.enclosing import bound_once, contains, is_label
from codemods.reading.edits.dead import assignment_only_for
from codemods.reading.edits.layout import comments_in, lost_comments
from codemods.reading.edits.optional_results import arguments_given, function_only_for, optional_result
from codemods.reading.units.policies import class_elements, policy_call, policy_classes
from codemods.reading.values.choices import written

from ..draft import Draft, Note, Switch, UnitSelector
from ..places.in_place import mentions
from .at_run_time import ask_at_run_time
from .inline import asks_for_classes, bury, can_be_inlined, is_policy_argument, units_in_a_list, units_of
from .made_elsewhere import returned_for_one_call, translate_elsewhere
from .unit_classes import can_be_container, can_be_root, can_nest


def translate_policy(value: cst.BaseExpression, draft: Draft) -> None:
    """Set `draft.selector`. Raises NotStatic where the units depend on more than a function of the policy can see."""
    origins = draft.file.origins(value)
    if all(origin.is_none for origin in origins):
        return
    if any(_is_called(origin) for origin in origins):
        draft.notes.append(Note(_CALLED, "expect units where it stopped, or went on without FSDP"))
    chosen = _chosen_above(value, draft)
    state = draft.state()
    if chosen is not None:
        try:
            switch_policy(chosen.switch, draft)
            if draft.selector is not None and not draft.definitions - state["definitions"]:
                draft.dead += chosen.statements
                draft.inlined |= chosen.made
                return
        except NotStatic:
            pass
        draft.restore(state)
    if _returned_or_none(value, draft) or returned_for_one_call(value, draft) or returned_in_tuple(value, draft):
        return
    try:
        if len(origins) == 1 and can_be_inlined(draft, origins[0]) and not asks_for_classes(origins[0]):
            draft.selector = units_of(origins[0], draft)
            bury(value, origins[0], draft, lambda use: is_policy_argument(draft, use))
        else:
            translate_elsewhere(value, origins, draft)
    except NotStatic:
        if any(policy_call(origin)[0] == "CustomPolicy" for origin in origins):
            raise  # its function may give units arguments of their own
        draft.restore(state)
        ask_at_run_time(value, origins, draft)


_CALLED = "auto_wrap_policy: FSDP1 raised for a policy that is called without a module; it is taken for a partial of it"


_FUNCTIONS = frozenset({"size_based_auto_wrap_policy", "default_auto_wrap_policy", "transformer_auto_wrap_policy"})
"""Policies that take a module first."""


def _is_called(origin: Origin) -> bool:
    """`size_based_auto_wrap_policy(min_num_params=1e6)`, with no module."""
    if not isinstance(origin.node, cst.Call) or any(a.star or a.keyword is None for a in origin.node.args):
        return False
    return origin.file.fsdp1(origin.node.func) in _FUNCTIONS


def _returned_or_none(value: cst.BaseExpression, draft: Draft) -> bool:
    """A policy, or None, that a function of this file returns for this call alone: its condition is asked here."""
    ctx = draft.file
    argument = ctx.parent(value)
    if draft.is_function or argument is None or ctx.parent(argument) is not draft.call:
        return False
    found = optional_result(ctx, value)
    model = ctx.plain(draft.model)
    read = [
        each for each in ctx.inside(value) if isinstance(each, (cst.Name, cst.Attribute)) and not is_label(each, ctx)
    ]
    if found is None or any(ctx.code(each) == model for each in read):
        return False  # it may be another model above the call
    state = draft.state()
    origin = Origin(ctx, found.made)
    try:
        if asks_for_classes(origin):
            return False
        draft.selector = replace(units_of(origin, draft), guard=found.test)
    except NotStatic:
        draft.restore(state)
        return False
    draft.quoted |= {node.id for node in ast.walk(ast.parse(ctx.plain(found.test))) if isinstance(node, ast.Name)}
    draft.dead.append(found.function)
    draft.inlined.add(found.made)
    return True


@dataclass(frozen=True)
class _Chosen:
    """A policy that a condition above the call decides about, for this call alone."""

    switch: Switch
    statements: list[cst.CSTNode]
    """Those that do nothing else."""
    made: set[cst.CSTNode]


def _chosen_above(value: cst.BaseExpression, draft: Draft) -> _Chosen | None:
    """`if several: policy = A` and `else: policy = None`, or None above of it."""
    ctx = draft.file
    bound = ctx.bound(value) if isinstance(value, cst.Name) else None
    if bound is None or len(bound) != 2 or any(where.path != ctx.path for where, _ in bound):
        return None
    made = [each for _, each in bound]
    lines = [assignment_only_for(ctx, each, lambda use: use is value) for each in made]
    choices = [ctx.parent(block) for line in lines if line is not None and (block := ctx.parent(line)) is not None]
    choices = [ctx.parent(each) if isinstance(each, cst.Else) else each for each in choices]
    choice = choices[-1] if len(choices) == 2 else None
    if not isinstance(choice, cst.If) or isinstance(ctx.parent(choice), cst.If) or _has_comments(ctx, choice):
        return None
    branches = [choice.body.body, *([choice.orelse.body.body] if isinstance(choice.orelse, cst.Else) else [])]
    if isinstance(choice.orelse, cst.If) or any(len(branch) != 1 or branch[0] not in lines for branch in branches):
        return None
    if not ctx.same_meaning(choice.test, draft.call) or not ctx.same_meaning(made[0], draft.call):
        return None
    if not ctx.same_meaning(made[1], draft.call):
        return None
    by_line = dict(zip(lines, made, strict=True))
    if len(branches) == 1:
        before = next(line for line in lines if line is not branches[0][0])
        if before is None or ctx.parent(before) is not ctx.parent(choice) or _has_comments(ctx, before):
            return None
        return _Chosen(Switch(choice.test, made[1], made[0]), [before, choice], set(made))
    switch = Switch(choice.test, by_line[branches[0][0]], by_line[branches[1][0]])
    return _Chosen(switch, [choice], set(made))


def _has_comments(ctx: Context, statement: cst.CSTNode) -> bool:
    return bool(comments_in(ctx.text[slice(*ctx.whole_lines(statement))]) or lost_comments(ctx, statement))


def switch_policy(value: Switch, draft: Draft) -> None:
    """`auto_wrap_policy` that a condition decides about, where one side has none."""
    sides = [side for side in (value.body, value.orelse) if side is not None]
    present = [side for side in sides if not (isinstance(side, cst.BaseExpression) and draft.is_none(side))]
    if not present:
        return
    if len(present) > 1 or not isinstance(present[0], cst.BaseExpression):
        raise NotStatic("auto_wrap_policy is given under a condition")
    translate_policy(present[0], draft)
    if draft.selector is None:
        return
    test = written(draft.file, value.test, {})
    if present[0] is not value.body:
        test = f"not {test}" if isinstance(value.test, (cst.Name, cst.Attribute, cst.Call)) else f"not ({test})"
    guard = f"{test} and {draft.selector.guard}" if draft.selector.guard else test
    draft.selector = replace(draft.selector, guard=guard)


# A policy of classes that a function returns beside other settings, always the same: the loop names the classes.
#
# `precision, policy, strategy = get_settings(args, Block)` gives no units any more, `isinstance(module, Block)` asks.


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
    made = bound_once(ctx, element)
    line = assignment_only_for(ctx, made, lambda use: use is element) if made is not None else None
    return (made, line) if made is not None and line is not None else (element, None)


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
