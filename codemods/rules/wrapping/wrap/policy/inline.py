"""A policy that is made where the constructor call sees it: its units, as a test of each module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import libcst as cst

from codemods.api import SUPPORT, Context, NotStatic, Origin
from codemods.reading.code.enclosing import call_given
from codemods.reading.edits.dead import assignment_only_for
from codemods.reading.edits.layout import comments_in, lost_comments
from codemods.reading.units.policies import (
    CLASS_POLICIES,
    class_elements,
    isinstance_argument,
    joined_classes,
    policy_call,
    policy_classes,
)
from codemods.reading.units.predicates import class_policies
from codemods.reading.wraps.chosen_class import takes_alone
from codemods.reading.wraps.manual import argument_name
from codemods.tables.arguments import POSITIONS
from codemods.tables.names import WRAPPER

from ..draft import Draft, UnitSelector
from .condition import function_targets, is_yes_or_no, policy_targets
from .custom import custom_units
from .unit_classes import can_be_container, can_be_root, can_nest
from .unit_lists import list_of_units

_ATTENTION = ("torch.nn.MultiheadAttention", "torch.nn.Transformer")
"""Layers of `torch.nn` inside of which a size-based policy looks only where BatchNorm would get units of its own."""


def units_of(origin: Origin, draft: Draft, *, as_test: bool = False) -> UnitSelector:
    """The units of a policy that is made in the same function, or at the top of the same file."""
    draft.quoted.update(_words(origin))
    own = policy_targets(origin)
    if own is not None:
        return own
    made, arguments = policy_call(origin)
    if made == "always_wrap_policy":
        return UnitSelector("", nested=True, may_be_root=True, may_be_container=True)
    if made == "size_based_auto_wrap_policy":
        return _by_size(origin, arguments, draft)
    if made == "_or_policy":
        return _any_of(origin, arguments, draft)
    if made == "lambda_auto_wrap_policy":
        return function_targets(origin, given_for(arguments, "lambda_fn"), draft, as_test=as_test)
    if made == "CustomPolicy":
        function = given_for(arguments, "lambda_fn", first=True)
        if not is_yes_or_no(function):
            if as_test:
                raise NotStatic("auto_wrap_policy: CustomPolicy, which may give units arguments of their own")
            return custom_units(origin, function, draft)
        return function_targets(origin, function, draft, as_test=as_test)
    classes = policy_classes(origin)
    listed = units_in_a_list(origin.file, classes, draft) if not as_test else None
    return listed or UnitSelector(
        f"isinstance({{module}}, {isinstance_argument(draft.file, classes)})",
        nested=can_nest(origin.file, classes),
        may_be_root=can_be_root(draft, origin.file, classes),
        may_be_container=can_be_container(origin.file, classes),
    )


def units_in_a_list(
    ctx: Context, classes: cst.BaseExpression, draft: Draft, asked: Collection[cst.CSTNode] = ()
) -> UnitSelector | None:
    """The units, where an attribute of the model is the list of all modules of a class."""
    elements = class_elements(classes)
    if elements is None or len(elements) != 1 or draft.ignores or draft.float32_class:
        return None
    origins = ctx.origins(elements[0])
    listed = list_of_units(draft.file, draft.call, draft.built, origins[0], asked) if len(origins) == 1 else None
    if listed is None:
        return None
    return UnitSelector("", nested=False, may_be_root=False, units=f"{draft.model}.{listed}", item=_one_of(listed))


def _one_of(listed: str) -> str:
    """`block` of `blocks`."""
    return listed[:-1] if listed.endswith("s") and listed[:-1].isidentifier() else "block"


def _any_of(origin: Origin, arguments: Sequence[cst.Arg], draft: Draft) -> UnitSelector:
    """`_or_policy`: the units of several policies."""
    policies = class_elements(given_for(arguments, "policies"))
    if not policies:
        raise NotStatic(f"auto_wrap_policy: {origin.text}")
    found = []
    for policy in policies:
        made = origin.file.origins(policy)
        if len(made) != 1 or not can_be_inlined(draft, made[0]) or asks_for_classes(made[0]):
            raise NotStatic(f"auto_wrap_policy: {origin.text}")
        units = units_of(made[0], draft, as_test=True)
        if units.units:  # not a test, so that it cannot be one of several
            raise NotStatic(f"auto_wrap_policy: {origin.text}")
        found.append(units)
        bury(policy, made[0], draft, lambda use: any(node is origin.node for node in draft.file.ancestors(use)))
    if not all(targets.test for targets in found):
        return UnitSelector("", nested=True, may_be_root=True, may_be_container=True)
    return UnitSelector(
        _test_of_classes(origin, draft) or f"({' or '.join(targets.test for targets in found)})",
        nested=True,
        may_be_root=any(targets.may_be_root for targets in found),
        may_be_container=any(targets.may_be_container for targets in found),
    )


def _test_of_classes(origin: Origin, draft: Draft) -> str:
    """One question for all classes, where the policies ask for no more than those."""
    try:
        members = class_policies(origin)
    except NotStatic:
        return ""
    classes = joined_classes(draft.file, [policy_classes(member) for member in members])
    return f"isinstance({{module}}, {classes})"


def _by_size(origin: Origin, arguments: Sequence[cst.Arg], draft: Draft) -> UnitSelector:
    """`size_based_auto_wrap_policy` with its defaults; what it excludes by other classes is asked at run time."""
    named = {argument.keyword.value if argument.keyword is not None else "": argument.value for argument in arguments}
    may_hold_attention = any(name.startswith(_ATTENTION) for name in draft.built.from_libraries)
    may_look_inside = "mixed_precision" in draft.present
    if named.keys() - {"min_num_params"} or (may_hold_attention and may_look_inside):
        raise NotStatic(f"auto_wrap_policy: {origin.text}")
    if draft.float32_class:
        raise NotStatic("auto_wrap_policy by size, which counts what it leaves out")
    size = draft.file.quote(named["min_num_params"]) if named else "int(1e8)"
    whole = f", whole={draft.imported('torch', 'nn')}.MultiheadAttention"
    more = f"{whole if may_hold_attention or not draft.built.is_whole else ''}{draft.left_out}"
    units = f"{draft.imported(SUPPORT, 'units_by_size')}({draft.model}, {size}{more})"
    return UnitSelector("", nested=True, may_be_root=False, units=units)


def bury(value: cst.BaseExpression, origin: Origin, draft: Draft, expected: Callable[[cst.Name], bool]) -> None:
    """A policy in a variable goes with its last use."""
    if isinstance(value, cst.Name) and isinstance(origin.node, cst.FunctionDef):
        _bury_function(value, origin.node, draft, expected)
    elif isinstance(value, cst.Name) and origin.node is not None:
        statement = assignment_only_for(draft.file, origin.node, expected)
        if statement is not None:
            draft.dead.append(statement)
            uses = draft.file.uses(cst.ensure_type(statement, cst.SimpleStatementLine).body[0])
            if not uses or value is min(uses, key=lambda use: draft.file.span(use)):  # once, of several calls
                draft.unit_comments += lost_comments(draft.file, statement)
            draft.inlined.add(origin.node)


def _bury_function(
    value: cst.Name, function: cst.FunctionDef, draft: Draft, expected: Callable[[cst.Name], bool]
) -> None:
    ctx, name = draft.file, function.name.value
    uses = ctx.uses(function)
    is_seen = not isinstance(ctx.scope(function), cst.Module) or not ctx.is_read_elsewhere(name)
    named = [node for where, node in ctx.references_to(function)]
    if not is_seen or set(named) != set(uses) or not all(map(expected, uses)):
        return
    draft.dead.append(function)
    draft.inlined.add(function)
    if value is min(uses, key=lambda use: ctx.span(use)):
        comments = [*lost_comments(ctx, function), *comments_in(ctx.text[slice(*ctx.whole_lines(function))])]
        draft.unit_comments += dict.fromkeys(comments)


def given_for(arguments: Sequence[cst.Arg], name: str, first: bool = False) -> cst.BaseExpression:
    """The argument of this name, or of the first place. Raises NotStatic where there is none."""
    for argument in arguments:
        if argument.keyword is not None and argument.keyword.value == name:
            return argument.value
    if first and arguments and arguments[0].keyword is None and not arguments[0].star:
        return arguments[0].value
    raise NotStatic(f"auto_wrap_policy without {name}")


def asks_for_classes(origin: Origin) -> bool:
    """Whether the classes are asked from a module: `fully_shard` changes the class of each unit, so that the same
    question within the loop has another answer from the second module on.
    """
    made, arguments = policy_call(origin)
    if made not in CLASS_POLICIES:
        return False
    return any(_asks_for_class(node) for argument in arguments for node in origin.file.inside(argument.value))


def _asks_for_class(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) or (isinstance(node, cst.Attribute) and node.attr.value == "__class__")


def can_be_inlined(draft: Draft, origin: Origin) -> bool:
    """Whether the names used where the policy is made mean the same at the constructor call."""
    if origin.file is not draft.file or origin.node is None:
        return False
    read = _read(origin)
    scope = draft.file.scope(origin.node)
    near = scope is draft.file.scope(draft.call) or isinstance(scope, cst.Module)
    return near and bool(read) and all(draft.file.same_meaning(each, draft.call) for each in read)


def _read(origin: Origin) -> list[cst.BaseExpression]:
    """What a policy is made of: of a function that hands on to one, what it gives that."""
    if isinstance(origin.node, cst.FunctionDef):
        return [argument.value for argument in policy_call(origin)[1]]
    return [origin.node] if isinstance(origin.node, cst.BaseExpression) else []


def _words(origin: Origin) -> list[str]:
    inside = (node for each in _read(origin) for node in origin.file.inside(each))
    return [node.value for node in inside if isinstance(node, cst.Name)]


def is_policy_argument(draft: Draft, use: cst.Name) -> bool:
    """Whether a name is what a constructor call gets for `auto_wrap_policy`."""
    ctx = draft.file
    if draft.spread.get(use) == "auto_wrap_policy":
        return True
    argument, call = ctx.parent(use), call_given(use, ctx)
    if not isinstance(argument, cst.Arg) or call is None:
        return False
    if ctx.fsdp1(call.func) != WRAPPER and not (call is draft.call and takes_alone(ctx, argument)):
        return False
    if argument.keyword is not None:
        return argument_name(argument) == "auto_wrap_policy"
    return call.args[POSITIONS.index("auto_wrap_policy") :][:1] == (argument,)
