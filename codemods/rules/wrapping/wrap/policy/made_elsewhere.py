"""A policy that is made elsewhere: there it becomes its classes, or a function that is asked of each module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import libcst as cst

from codemods.api import NotStatic, Origin
from codemods.reading.code.enclosing import bound_once
from codemods.reading.edits.dead import assignment_only_for
from codemods.reading.edits.optional_results import only_result
from codemods.reading.units.policies import (
    class_elements,
    isinstance_argument,
    joined_classes,
    policy_call,
    policy_classes,
)
from codemods.reading.units.predicates import class_policies, predicates
from codemods.reading.values.choices import Option, written

from ..draft import Draft, Entry, UnitSelector
from ..places.in_place import chosen_for, keep_none, put_for_none, rename, renamed
from .at_run_time import ask_policy, is_policy
from .condition import function_targets
from .handed_in import hand_in_units
from .inline import asks_for_classes, given_for, units_of
from .of_library import is_asked_by_others
from .unit_classes import can_be_container, can_be_root, can_make_root, can_nest


def policy_of_entry(value: Entry, draft: Draft) -> None:
    """A policy that comes out of a dict."""
    if all(origin.is_none for origin in value.values):
        return
    state = draft.state()
    try:
        _classes_in_dict(value, draft)
        return
    except NotStatic:
        draft.restore(state)
    name = draft.held(value.text, "policy", "wrap_policy")
    is_given = bool(value.values) and not value.may_lack and all(is_policy(origin) for origin in value.values)
    ask_policy(name, value.values, is_given, draft)


def _classes_in_dict(value: Entry, draft: Draft) -> None:
    """A dict that goes on holds the classes, until the loop takes them out of it. Raises NotStatic."""
    origins, nodes = value.values, {origin.node for origin in value.values}
    if not draft.goes_on or not value.is_only_given or value.may_lack or len(value.stored) != 1 or nodes & draft.left:
        raise NotStatic("auto_wrap_policy comes out of a dict")
    ((where, source),) = value.stored
    classes = _classes_of(origins, draft)
    draft.keeps -= nodes
    if len(classes.present) < len(origins) and not put_for_none(source, draft, "auto_wrap_policy", _no_classes, where):
        raise NotStatic("auto_wrap_policy comes out of a dict, and None is read elsewhere")
    found = chosen_for(where, source, lambda ctx, node: node in nodes)
    if found is not None:
        rename(where, found, draft, ("unit_classes",))
    draft.passed["auto_wrap_policy"] = "unit_classes"
    name = draft.held(value.text, "unit_classes", "fsdp_unit_classes")
    draft.selector = classes.selector(f"isinstance({{module}}, {name})")


def translate_elsewhere(value: cst.BaseExpression, origins: Sequence[Origin], draft: Draft) -> None:
    """The policy changes where it is made: into its classes, or into a function that the loop asks of each module."""
    if is_asked_by_others(origins, draft.file):
        raise NotStatic("auto_wrap_policy is given to a library as well")
    if draft.left & {origin.node for origin in origins if not origin.is_none}:
        raise NotStatic("auto_wrap_policy is asked by another call at run time")
    state = draft.state()
    nodes = {origin.node for origin in origins}
    try:
        if nodes & (draft.asked | draft.left):
            raise NotStatic("auto_wrap_policy is asked elsewhere")
        hand_in_units(value, draft, _one_flat_class)
        return
    except NotStatic:
        draft.restore(state)
    try:
        if nodes & draft.asked:
            raise NotStatic("auto_wrap_policy is asked elsewhere")
        _in_place(value, origins, draft)
    except NotStatic:
        draft.restore(state)
        if draft.ignores:
            raise
        _as_function(value, origins, draft)


def _one_flat_class(origin: Origin, model: cst.Name) -> str:
    """The test of a policy of one class, none of whose modules is the root, or lies in another one."""
    classes = policy_classes(origin)
    if can_nest(origin.file, classes) or can_be_container(origin.file, classes) or asks_for_classes(origin):
        raise NotStatic("auto_wrap_policy of modules in modules")
    if can_make_root(origin.file, model, origin.file, classes):
        raise NotStatic("auto_wrap_policy that may pick the root")
    return f"isinstance({{module}}, {isinstance_argument(origin.file, classes)})"


def _as_function(value: cst.BaseExpression, origins: Sequence[Origin], draft: Draft) -> None:
    present = [origin for origin in origins if not origin.is_none]
    keep_none(origins, draft)
    made = predicates(present)
    nodes = {each.origin.node for each in made if each.origin.node is not None}
    draft.definitions |= nodes
    draft.predicates |= nodes
    text = draft.file.quote(value)
    if not isinstance(value, (cst.Name, cst.Attribute)):
        text = draft.held(written(draft.file, value, {}), "is_unit", "is_unit_module")
    draft.selector = UnitSelector(
        f"{text}({{module}})",
        nested=True,
        may_be_root=True,
        may_be_container=any(_picks_container(each.origin, draft) for each in made),
        guard=f"{text} is not None" if len(present) < len(origins) else "",
    )


def _picks_container(origin: Origin, draft: Draft) -> bool:
    """Whether a list or dict of modules may be a unit of a policy, or of one that is written inside of it."""
    made, arguments = policy_call(origin)
    if made == "_or_policy":
        elements = class_elements(given_for(arguments, "policies")) or []
        inner = [Origin(origin.file, each) for each in elements if isinstance(each, cst.Call)]
        return any(_picks_container(each, draft) for each in inner)
    if made == "lambda_auto_wrap_policy":
        function = given_for(arguments, "lambda_fn")
        return function_targets(origin, function, draft, as_test=True).may_be_container
    return can_be_container(origin.file, policy_classes(origin))


def returned_for_one_call(value: cst.BaseExpression, draft: Draft) -> bool:
    """A policy of classes that a function of this file returns for this call alone: the loop names the classes."""
    ctx = draft.file
    call = bound_once(ctx, value) or value
    found = only_result(ctx, call)
    if found is None or draft.ignores or draft.float32_class:
        return False
    function, made, named = found
    line = assignment_only_for(ctx, call, lambda use: use is value) if call is not value else None
    state = draft.state()
    try:
        origin = Origin(ctx, made)
        members = class_policies(origin)
        classes = [policy_classes(member) for member in members]
        if (call is not value and line is None) or any(map(asks_for_classes, members)):
            return False
        said = {each.node for each in (origin, *members) if each.node is not None}
        if said & draft.left or not said.issuperset(named):
            return False
        if not all(ctx.same_meaning(each, draft.call) for each in classes):
            return False
        several = f"isinstance({{module}}, {joined_classes(ctx, classes)})"
        alone = len(members) == 1
        selector = units_of(members[0], draft) if alone else _classes_of([origin], draft).selector(several)
    except NotStatic:
        draft.restore(state)
        return False
    draft.restore(state)
    draft.selector = selector
    draft.inlined |= said
    draft.dead += [function, *([line] if line is not None else [])]
    return True


@dataclass(frozen=True)
class _Classes:
    """Policies that become the tuples of their classes where they are made."""

    present: Sequence[Origin]
    """Those that are not None."""
    nested: bool
    may_be_root: bool
    may_be_container: bool

    def selector(self, test: str) -> UnitSelector:
        return UnitSelector(test, self.nested, self.may_be_root, self.may_be_container)


def _classes_of(origins: Sequence[Origin], draft: Draft) -> _Classes:
    """Let policies become their classes. Raises NotStatic for one that asks for more."""
    nested = may_be_root = may_be_container = False
    present = [origin for origin in origins if not origin.is_none]
    for origin in present:
        members = class_policies(origin)
        if any(member.node in draft.asked for member in members):
            raise NotStatic("auto_wrap_policy is asked elsewhere")
        nested = nested or len(present) > 1 or len(members) > 1
        for member in members:
            classes = policy_classes(member)
            nested = nested or can_nest(member.file, classes)
            may_be_root = may_be_root or can_be_root(draft, member.file, classes)
            may_be_container = may_be_container or can_be_container(member.file, classes)
        draft.definitions |= {each.node for each in (origin, *members) if each.node is not None}
    return _Classes(present, nested, may_be_root, may_be_container)


def _in_place(value: cst.BaseExpression, origins: Sequence[Origin], draft: Draft) -> None:
    """The policy is made elsewhere: there it becomes a tuple of classes, and the loop tests against it."""
    classes = _classes_of(origins, draft)
    optional = len(classes.present) < len(origins)
    # Without a policy, FSDP1 made no units of the classes that it kept in float32 either.
    if optional and not draft.float32_class and put_for_none(value, draft, "auto_wrap_policy", _no_classes):
        optional = False
    elif optional:
        keep_none(origins, draft)
    text = draft.file.quote(value)
    if isinstance(value, cst.Name) and "polic" in value.value.lower():
        made = [Option(each.file, each.node, False) for each in origins if isinstance(each.node, cst.BaseExpression)]
        text = renamed(value, made, draft, "auto_wrap_policy", ("unit_classes", "fsdp_unit_classes"))
    elif not isinstance(value, (cst.Name, cst.Attribute)):
        text = draft.held(text, "unit_classes")
    is_guarded = optional and bool(draft.float32_class)
    test = f"isinstance({{module}}, {text}{' or ()' if optional and not is_guarded else ''})"
    draft.selector = replace(classes.selector(test), guard=f"{text} is not None" if is_guarded else "")


def _no_classes(_none: Option) -> str:
    return "()"
