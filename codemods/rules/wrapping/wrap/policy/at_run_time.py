"""A policy that only run time knows: it stays an object, and is asked which modules it picks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from codemods.api import SUPPORT, NotStatic, Origin
from codemods.reading.units.policies import class_elements, policy_call, policy_classes
from codemods.reading.units.policy_functions import are_by_module, leaves_something, uses
from codemods.reading.values.choices import written

from ..draft import Draft, Note, UnitSelector
from .unit_classes import can_be_container


def ask_at_run_time(value: cst.BaseExpression, origins: Sequence[Origin], draft: Draft) -> None:
    """The policy stays an object that is asked, by one function, which modules it picks."""
    draft.keeps.update(origin.node for origin in origins if origin.node is not None)
    text = draft.file.quote(value)
    if not isinstance(value, (cst.Name, cst.Attribute)):
        text = draft.held(written(draft.file, value, {}), "policy", "wrap_policy")
    seen = [origin for origin in origins if not isinstance(origin.node, cst.Subscript)]  # what a seen table holds
    ask_policy(text, origins, bool(seen) and all(is_policy(origin) for origin in seen), draft)


def ask_policy(text: str, origins: Sequence[Origin], is_given: bool, draft: Draft) -> None:
    """Ask a policy which modules it picks: of each module, where it looks at no more than the module, and its marks."""
    guard = "" if is_given else f"{text} is not None"
    draft.notes.append(
        Note(f"which modules `{draft.file.plain(text)}` picks is seen at run time", "check compares the units")
    )
    if are_by_module(origins, draft.file, or_mark=not draft.ignores):  # what is ignored was not asked about
        test, ask = (f"{text}({{module}}, recurse={recurse}, nonwrapped_numel=0)" for recurse in (False, True))
        marks = "" if are_by_module(origins, draft.file) else ask
        container = not all(_picks_layers(origin) for origin in origins if not origin.is_none)
        draft.selector = UnitSelector(
            test, nested=True, may_be_root=True, may_be_container=container, marks=marks, guard=guard
        )
        return
    if any(_may_be_custom(origin) for origin in origins) and uses(draft.file, "CustomPolicy", "_Policy"):
        raise NotStatic("auto_wrap_policy may be an object that gives units arguments of their own")
    # Mixed precision looked inside of every module, for those that stay in float32, after it had asked the policy.
    looks_inside = "mixed_precision" in draft.present and not leaves_something(origins)
    draft.selector = UnitSelector(
        "", nested=True, may_be_root=False, guard=guard, policy=text, looks_inside=looks_inside
    )


def find_units(draft: Draft) -> None:
    """Write the call that asks the policy, now that it is known what tells whether there is mixed precision."""
    found = draft.selector
    if found is None or not found.policy:
        return
    more = f", look_inside={draft.casts or True}" if found.looks_inside else ""
    more += f", kept={draft.float32_class}" if draft.float32_class else ""
    units = f"{draft.imported(SUPPORT, 'policy_units')}({draft.model}, {found.policy}{draft.left_out}{more})"
    draft.selector = replace(found, units=units)


def _picks_layers(origin: Origin) -> bool:
    """Whether it is a policy of classes none of which a list or dict of modules is an instance of."""
    try:
        classes = policy_classes(origin)
    except NotStatic:
        return False
    return class_elements(classes) is not None and not can_be_container(origin.file, classes)


def _may_be_custom(origin: Origin) -> bool:
    return not (origin.is_none or is_policy(origin)) or policy_call(origin)[0] == "CustomPolicy"


def is_policy(origin: Origin) -> bool:
    """Whether it is a policy for sure, and not None."""
    is_partial = isinstance(origin.node, cst.Call) and origin.file.dotted(origin.node.func) == "functools.partial"
    return is_partial or isinstance(origin.node, (cst.FunctionDef, cst.Lambda)) or policy_call(origin)[0] is not None
