"""What is chosen before the constructor call, and is written anew where it stands, because only such calls read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, Edit, NotStatic, Origin
from codemods.reading.code.enclosing import call_given, contains, is_label
from codemods.reading.code.words import is_name
from codemods.reading.processes.one_process import makes_group
from codemods.reading.values.choices import Option, options, readers
from codemods.reading.wraps.manual import is_constructor, is_factory

from ..draft import Draft


def is_for_constructors(option: Option, value: cst.BaseExpression, argument: str) -> bool:
    """Whether nothing but constructor calls, which are rewritten, reads what is chosen, as this argument."""
    found = readers(option.file, option.node, value)
    return bool(found) and all(node is value or is_given(ctx, node, argument) for ctx, node in found or ())


def is_before_group(ctx: Context, value: cst.BaseExpression, call: cst.Call) -> bool:
    """Whether a variable takes what is chosen before the process group is there: no mesh can be made of it yet."""
    if not isinstance(value, cst.Name):
        return False
    targets, _ = mentions(ctx, ctx.scope(call), value.value)
    first, last = min((ctx.span(each)[1] for each in targets), default=0), ctx.span(call)[0]
    between = (each for each in ctx.calls(ctx.scope(call)) if first <= ctx.span(each)[0] < last)
    return bool(targets) and any(makes_group(ctx, each) for each in between)


def contradicted(drafts: Iterable[Draft]) -> set[cst.CSTNode]:
    """The options that would become something else for two calls: each reads at run time which it is."""
    texts: dict[cst.CSTNode, set[str]] = {}
    for draft in drafts:
        for node, text in draft.options.items():
            texts.setdefault(node, set()).add(draft.file.plain(text))
    return {node for node, found in texts.items() if len(found) > 1}


def put_for_none(
    value: cst.BaseExpression,
    draft: Draft,
    argument: str,
    text: Callable[[Option], str],
    where: Context | None = None,
) -> bool:
    """Write what stands for None where None is written. False where anything but constructor calls may read it.

    `where` is the file of the value, if that is another one than the call's.
    """
    ctx = where or draft.file
    try:
        found = options(ctx, value, _is_none_or_never)
    except NotStatic:
        return False
    nones = [option for option in found if is_name(option.node, "None")]
    if not all(is_for_constructors(each, value, argument) for each in nones):
        return False
    if draft.left & {option.node for option in nones}:
        return False
    for option in nones:
        draft.definitions.add(option.node)
        draft.edits.append((option.file, Edit(*option.file.span(option.node), text(option))))
    return True


def keep_none(origins: Iterable[Origin], draft: Draft) -> None:
    """What is written here asks for None."""
    draft.keeps.update(origin.node for origin in origins if origin.is_none and origin.node is not None)


def _is_none_or_never(ctx: Context, node: cst.BaseExpression) -> bool:
    if is_name(node, "None"):
        return True
    origins = ctx.origins(node)
    return bool(origins) and not any(origin.is_none or origin.node is None for origin in origins)


def is_given(ctx: Context, node: cst.BaseExpression, keyword: str) -> bool:
    """Whether a value is an argument of a constructor call."""
    argument, call = ctx.parent(node), call_given(node, ctx)
    if not isinstance(argument, cst.Arg) or call is None or argument.keyword is None:
        return False
    return argument.keyword.value == keyword and (is_constructor(ctx, call) or is_factory(ctx, call))


def renamed(value: cst.Name, found: Sequence[Option], draft: Draft, argument: str, better: Sequence[str]) -> str:
    """The variable that held the choice gets a name that says what it holds now, where it is a local one; so does the
    one in the function that chooses.
    """
    ctx, scope = draft.file, draft.file.scope(draft.call)
    if not is_renamed(value, draft, argument):
        return value.value
    targets, _ = mentions(ctx, scope, value.value)
    name = draft.fresh(*better)
    draft.edits += [(ctx, Edit(*ctx.span(target), name)) for target in targets]
    chosen_in = dict.fromkeys((option.file.scope(option.node), option.file) for option in found)
    for inner, where in chosen_in:
        held = {_held_by(option) for option in found if option.file.scope(option.node) is inner} - {""}
        own, read = mentions(where, inner, held.pop()) if len(held) == 1 else ([], [])
        taken = {node.value for node in where.inside(inner) if isinstance(node, cst.Name)}
        if inner is scope or not isinstance(inner, cst.FunctionDef) or name in taken or not own:
            continue
        if all(isinstance(where.parent(use), (cst.Return, cst.Element)) for use in read):
            draft.edits += [(where, Edit(*where.span(node), name)) for node in (*own, *read)]
    return name


def _held_by(option: Option) -> str:
    """The variable that an option is assigned to, or a choice of it and others."""
    statement = option.file.parent(option.node)
    while isinstance(statement, cst.IfExp):
        statement = option.file.parent(statement)
    target = statement.targets[0].target if isinstance(statement, cst.Assign) else None
    return target.value if isinstance(target, cst.Name) else ""


def is_renamed(value: cst.Name, draft: Draft, argument: str) -> bool:
    """Whether that variable gets another name: only the call reads it, but for what it was before.

    `strategy = TABLE[strategy]`: the key keeps its name.
    """
    ctx, scope = draft.file, draft.file.scope(draft.call)
    targets, uses = mentions(ctx, scope, value.value)
    others = [call for call in ctx.calls(scope) if is_constructor(ctx, call) and call is not draft.call]
    if not isinstance(scope, cst.FunctionDef) or not targets or others:
        return False
    before = [use for use in uses if not is_given(ctx, use, argument)]
    if before and (ctx.bound(value) is None or _is_in_loop(ctx, targets)):
        return False  # the call, or the next round of a loop, may get what it was before
    return all(_is_of_before(ctx, use, targets, scope) for use in before)


def rename_function(found: Sequence[Option], draft: Draft, argument: str, better: str) -> None:
    """`get_sharding_strategy`, where this file alone calls it, says what it gives now."""
    ctx, scope = draft.file, draft.file.scope(draft.call)
    taken = {node.value for node in ctx.nodes(cst.Name)}
    for chosen_in in dict.fromkeys(o.file.scope(o.node) for o in found if o.file.path == ctx.path):
        if chosen_in is scope or not isinstance(chosen_in, cst.FunctionDef):
            continue
        old = chosen_in.name.value
        new = old.replace(argument, better)
        if (
            new in taken
            or old == new
            or not isinstance(ctx.parent(chosen_in), cst.Module)
            or ctx.is_read_elsewhere(old)
        ):
            continue
        named = [name for _, name in ctx.references_to(chosen_in)]
        calls = [ctx.parent(name) for name in named if isinstance(name, cst.Name)]
        said = any(node.evaluated_value == old for node in ctx.nodes(cst.SimpleString))
        if len(calls) == len(named) and not said and all(isinstance(each, cst.Call) for each in calls):
            draft.edits += [(ctx, Edit(*ctx.span(name), new)) for name in (chosen_in.name, *named)]


@dataclass(frozen=True)
class Chosen:
    """What a local variable, or another expression, can hold where a dict takes it."""

    values: Sequence[Option]
    names: Sequence[cst.Name]
    """Where the variable stands, so that it may get another name."""


def chosen_for(
    ctx: Context, value: cst.BaseExpression, is_known: Callable[[Context, cst.BaseExpression], bool]
) -> Chosen | None:
    """The options of what is put into a dict and goes nowhere else; None where they are not all seen.

    A parameter that the variable was before counts for nothing: `if mode == "full": mode = FULL_SHARD`.
    """
    if not isinstance(value, cst.Name):
        return _chosen(ctx, value, is_known)
    scope = ctx.scope(value)
    targets, uses = mentions(ctx, scope, value.value)
    assigned = [statement for target in targets if (statement := _alone(ctx, target)) is not None]
    if not isinstance(scope, cst.FunctionDef) or not targets or len(assigned) < len(targets):
        return None
    if _is_in_loop(ctx, targets):
        return None
    if not all(use is value or _is_of_before(ctx, use, targets, scope) for use in uses):
        return None
    found = [_chosen(ctx, each.value, is_known) for each in assigned]
    options_here = [option for each in found if each is not None for option in each.values]
    return Chosen(options_here, [*targets, value]) if all(each is not None for each in found) else None


def _chosen(
    ctx: Context, value: cst.BaseExpression, is_known: Callable[[Context, cst.BaseExpression], bool]
) -> Chosen | None:
    """The options of an expression, which all stand in it."""
    try:
        found = options(ctx, value, is_known)
    except NotStatic:
        return None
    inside = set(ctx.inside(value))
    return Chosen(found, ()) if all(option.node in inside for option in found) else None


def _alone(ctx: Context, target: cst.Name) -> cst.Assign | None:
    """`name = …` with no other target."""
    holder = ctx.parent(target)
    statement = ctx.parent(holder) if isinstance(holder, cst.AssignTarget) else None
    return statement if isinstance(statement, cst.Assign) and len(statement.targets) == 1 else None


def _is_of_before(ctx: Context, use: cst.Name, targets: Sequence[cst.Name], scope: cst.CSTNode) -> bool:
    """Whether a use reads what a variable was before all of its assignments: it is above, or in another branch, or in
    what is assigned.
    """
    at = ctx.span(use)[0]
    return ctx.scope(use) is scope and all(
        at < ctx.span(each)[0] or _is_beside(ctx, each, use) or _is_assigned(ctx, each, use) for each in targets
    )


def _is_in_loop(ctx: Context, targets: Sequence[cst.Name]) -> bool:
    return any(isinstance(node, (cst.For, cst.While)) for target in targets for node in ctx.ancestors(target))


def _is_assigned(ctx: Context, target: cst.Name, use: cst.Name) -> bool:
    statement = _alone(ctx, target)
    return statement is not None and contains(ctx, statement.value, use)


def _is_beside(ctx: Context, target: cst.Name, use: cst.Name) -> bool:
    """Whether a use stands in the `elif` or `else` of a branch that assigns."""
    branches = (node for node in ctx.ancestors(target) if isinstance(node, cst.If))
    return any(contains(ctx, node.body, target) and contains(ctx, node.orelse, use) for node in branches if node.orelse)


def rename(where: Context, found: Chosen, draft: Draft, better: Sequence[str]) -> None:
    """Give the variable a name that says what it holds now."""
    if found.names:
        taken = {node.value for node in where.inside(where.scope(found.names[0])) if isinstance(node, cst.Name)}
        name = next((each for each in better if each not in taken), found.names[0].value)
        draft.edits += [(where, Edit(*where.span(node), name)) for node in found.names]


def mentions(ctx: Context, scope: cst.CSTNode, name: str) -> tuple[list[cst.Name], list[cst.Name]]:
    """Where a function binds a name by `=`, and where else it names it."""
    names = [node for node in ctx.inside(scope) if isinstance(node, cst.Name) and node.value == name]
    names = [node for node in names if not is_label(node, ctx)]
    targets = [node for node in names if _is_target(ctx, node)]
    return targets, [node for node in names if node not in targets]


def _is_target(ctx: Context, node: cst.Name) -> bool:
    """Whether it is bound by `name = …`, alone or in a tuple."""
    holder = ctx.parent(node)
    if isinstance(holder, cst.Element):
        holder = ctx.parent(cst.ensure_type(ctx.parent(holder), cst.Tuple)) if _in_tuple(ctx, holder) else None
    statement = ctx.parent(holder) if isinstance(holder, cst.AssignTarget) else None
    return isinstance(statement, cst.Assign) and len(statement.targets) == 1


def _in_tuple(ctx: Context, element: cst.Element) -> bool:
    return isinstance(ctx.parent(element), cst.Tuple)
