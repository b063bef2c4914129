"""`auto_wrap_policy`: which modules become units.

FSDP1 hands each module to a policy and never wraps the root by it; FSDP2 has no policies: a loop over
`model.modules()` calls `fully_shard` on each module that is to be a unit, children before parents.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

import libcst as cst

from codemods.api import Context, NotStatic, Origin
from codemods.reading.choices import written
from codemods.reading.dead import assignment_only_for
from codemods.reading.layout import comments_in, lost_comments
from codemods.reading.optional_results import optional_result
from codemods.reading.policies import (
    policy_call,
)

from .draft import Draft, Switch
from .policy_at_run_time import ask_at_run_time
from .policy_in_tuple import returned_in_tuple
from .policy_inline import asks_for_classes, bury, can_be_inlined, is_policy_argument, units_of
from .policy_made_elsewhere import returned_for_one_call, translate_elsewhere


def translate_policy(value: cst.BaseExpression, draft: Draft) -> None:
    """Set `draft.selector`. Raises NotStatic where the units depend on more than a function of the policy can see."""
    origins = draft.file.origins(value)
    if all(origin.is_none for origin in origins):
        return
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


def _returned_or_none(value: cst.BaseExpression, draft: Draft) -> bool:
    """A policy, or None, that a function of this file returns for this call alone: its condition is asked here."""
    ctx = draft.file
    argument = ctx.parent(value)
    if draft.is_function or argument is None or ctx.parent(argument) is not draft.call:
        return False
    found = optional_result(ctx, value)
    model = ctx.plain(draft.model)
    if found is None or any(
        isinstance(node, (cst.Name, cst.Attribute)) and ctx.code(node) == model for node in ctx.inside(value)
    ):
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
    present = [side for side in sides if not (isinstance(side, cst.BaseExpression) and _is_none(side, draft))]
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


def _is_none(value: cst.BaseExpression, draft: Draft) -> bool:
    return all(origin.is_none for origin in draft.file.origins(value))
