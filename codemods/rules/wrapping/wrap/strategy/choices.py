"""A strategy that the source chooses: the choice stays where it is, over arguments of `fully_shard`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import libcst as cst

from codemods.api import Context, Edit, NotStatic
from codemods.reading.code.shapes import annotation_of, front
from codemods.reading.edits.layout import length_behind, line_before
from codemods.reading.values.attribute_stores import Stored, stored
from codemods.reading.values.choices import Option, lookup, options, written
from codemods.tables.strategies import STRATEGIES

from ..draft import Draft, Entry
from ..mesh import own_meshes
from ..mesh.hybrid_only import HYBRID
from ..mesh.ranks import Ranks
from ..mesh.shape import is_for_each, is_of_all
from ..places.in_place import (
    chosen_for,
    is_before_group,
    is_for_constructors,
    is_given,
    is_renamed,
    rename,
    rename_function,
    renamed,
)
from .names import ARGUMENT, Strategy, assigned_once, frees_late, names_given, strategy_name


def choose_in_dict(value: Entry, draft: Draft) -> Strategy | None:
    """What the strategies stand for, in the dict; None where something else takes one out of it, or it is not seen."""
    if not value.is_only_given or value.may_lack or len(value.stored) != 1 or len(value.displays) != 1:
        return None
    ((where, source),) = value.stored
    found = chosen_for(where, source, lambda ctx, node: strategy_name(ctx, node) is not None)
    element = where.parent(source)
    if found is None or not isinstance(element, cst.DictElement) or where.parent(element) not in value.displays:
        return None
    names = frozenset(strategy_name(option.file, option.node) or "" for option in found.values)
    meshes = Strategy(names).meshes
    if {option.node for option in found.values} & draft.left:
        return None
    if meshes and draft.device_type == "cpu":
        return None
    if any(option.eager and strategy_name(option.file, option.node) in meshes for option in found.values):
        return None
    is_mesh = not frees_late(names)
    for option in found.values:
        name = strategy_name(option.file, option.node) or ""
        text = own_meshes.at_option(option, name, draft) if name in meshes else "None"
        parts = [f'"mesh": {text}'] if name in meshes else []
        parts += ['"reshard_after_forward": False'] if frees_late({name}) else []
        put = text if is_mesh else _displayed(option, parts)
        draft.definitions.add(option.node)
        draft.keeps.discard(option.node)
        draft.edits.append((option.file, Edit(*option.file.span(option.node), put)))
    rename(where, found, draft, ("mesh", "fsdp_mesh") if is_mesh else ("shard_kwargs", "strategy_kwargs"))
    draft.passed[ARGUMENT] = "mesh" if is_mesh else "**"
    return Strategy(names, "{}", has_mesh=True)


def choose_in_place(value: cst.BaseExpression, draft: Draft, given: Ranks | None) -> Strategy | None:
    """The same choice over keyword arguments of `fully_shard`; None where others read what is chosen from."""
    try:
        found = options(draft.file, value, lambda ctx, node: names_given(ctx, node) is not None)
    except NotStatic:
        return None
    if not all(is_for_constructors(option, value, ARGUMENT) for option in found):
        return None
    if draft.left & {option.node for option in found}:
        return None
    names = frozenset(name for option in found for name in names_given(option.file, option.node) or ())
    chosen = Strategy(names, "**", options=tuple(found), value=value)
    of_group = given is not None and given.argument == "process_group"
    made_here = chosen.meshes - HYBRID if of_group else chosen.meshes
    rest = given if made_here and not of_group and given and not is_for_each(given, chosen, draft) else None
    if rest is not None and not is_of_all(rest):
        return None
    if made_here and (given is None or of_group or rest is not None):
        chosen = _with_meshes(value, found, chosen, draft, of_group) or Strategy(names)
    if not chosen.kwargs or (rest is not None and not chosen.has_mesh):
        return None
    if chosen.has_mesh and is_before_group(draft.file, value, draft.call):
        return None
    is_mesh = chosen.has_mesh and not frees_late(names) and not any(_has_type(option) for option in found)
    texts = _meshes(found, draft) if is_mesh else {o.node: _option_text(o, chosen.has_mesh, draft) for o in found}
    inside = set(draft.file.inside(value))
    for option in found:
        if option.node not in inside:
            draft.options[option.node] = texts[option.node]
            draft.definitions.add(option.node)
            draft.edits.append((option.file, Edit(*option.file.span(option.node), texts[option.node])))
    better = ("mesh", "fsdp_mesh") if is_mesh else ("fsdp_kwargs", "shard_kwargs")
    rename_function(found, draft, ARGUMENT, better[0])
    if not frees_late(names) and not chosen.has_mesh:
        kwargs = ""  # all of them mean the same to `fully_shard`, but for the mesh
    elif isinstance(value, cst.Name):
        kwargs = renamed(value, found, draft, ARGUMENT, better)
        if rest is not None:
            chosen_as, kwargs = kwargs, draft.fresh(*better)
            _put(kwargs, chosen_as, rest, is_mesh, draft)
    else:
        kwargs = draft.fresh(*better)
        own: dict[cst.CSTNode, str] = {node: text for node, text in texts.items() if node in inside}
        _put(kwargs, written(draft.file, value, own), rest, is_mesh, draft)
    is_here = all(option.file.scope(option.node) is draft.file.scope(draft.call) for option in found)
    is_own = bool(kwargs) and (is_here or rest is not None)
    mesh, kwargs = (kwargs, "{}") if is_mesh else ("", kwargs or "{}")
    known = Strategy(names, kwargs, "", chosen.keys, chosen.key, chosen.has_mesh, mesh, tuple(found), value)
    return replace(known, is_own=is_own)


def names_seen(value: cst.BaseExpression, draft: Draft) -> frozenset[str]:
    """Those that a choice can give, where all that it chooses from is seen; else any."""
    try:
        found = options(draft.file, value, lambda ctx, node: names_given(ctx, node) is not None)
    except NotStatic:
        return frozenset(STRATEGIES)
    return frozenset(name for option in found for name in names_given(option.file, option.node) or ())


def _put(target: str, text: str, rest: Ranks | None, is_mesh: bool, draft: Draft) -> None:
    """What is chosen, with the mesh that the call is given where a strategy has none of its own."""
    if rest is None:
        draft.before.append(f"{target} = {text}")
        return
    part = f"({text})" if " if " in text else text
    entries = [f'"mesh": {rest.text}', f"**{part}"]
    line = f"{target} = {part} or {rest.text}" if is_mesh else draft.displayed(target, entries)
    draft.before.append(line or f"{target} = {{{', '.join(entries)}}}")


def _has_type(option: Option) -> bool:
    """Whether an annotation says what the option is, where it is assigned or returned."""
    ctx, scope = option.file, option.file.scope(option.node)
    is_returned = any(isinstance(node, cst.Return) for node in ctx.ancestors(option.node))
    if is_returned and isinstance(scope, cst.FunctionDef) and scope.returns is not None:
        return True
    return any(annotation_of(node) is not None for node in islice(ctx.ancestors(option.node), 3))


def _meshes(found: Sequence[Option], draft: Draft) -> dict[cst.BaseExpression, str]:
    """A mesh in the place of each strategy that has one, else None."""
    texts = {option.node: "None" for option in found}
    own = {o: n for o in found for n in names_given(o.file, o.node) or () if STRATEGIES[n].mesh}
    hybrid = [option for option, name in own.items() if name in HYBRID]
    for option, name in own.items():
        texts[option.node] = own_meshes.at_option(option, name, draft)
        put = own_meshes.in_place(option, name, draft) if hybrid == [option] else None
        if put is not None:
            texts[option.node], above = put
            draft.edits.append((option.file, above))
    return texts


def choose_in_attribute(value: cst.Attribute, draft: Draft, given: Ranks | None) -> Strategy | None:
    """An attribute that only constructor calls read takes what its strategies stand for; None for any other.

    All of them or none are hybrid ones, whose mesh is made at the call: what sets the attribute may run before there is
    a process group.
    """
    seen = stored(draft.file, value.attr.value)
    if seen is None or not all(is_given(where, read, ARGUMENT) for where, read in seen.reads):
        return None
    found = _options_inside(seen)
    names = frozenset(name for option in found or () for name in names_given(option.file, option.node) or ())
    meshes = {name for name in names if STRATEGIES[name].mesh}
    if not found or not frees_late(names) or (meshes and (given is not None or not names <= HYBRID)):
        return None
    if len(names) > 1 and any(_annotation(where, target) is not None for where, target in seen.targets):
        return None  # a dict is no default of a dataclass
    better = "reshard_after_forward" if len(names) == 1 else "fsdp_kwargs"
    name = "_" * value.attr.value.startswith("_") + better
    if draft.file.attributes(name):
        name = value.attr.value
    for option in found:
        draft.definitions.add(option.node)
        text = "False" if len(names) == 1 else _option_text(option, False, draft)
        draft.edits.append((option.file, Edit(*option.file.span(option.node), text)))
    for where, target in seen.targets:
        said = _annotation(where, target)
        draft.edits.append((where, Edit(*where.span(target), name)))
        if said is not None:
            draft.edits.append((where, Edit(*where.span(said.annotation), "bool")))
    text = f"{draft.file.quote(value.value)}.{name}"
    if len(names) == 1:
        return Strategy(names, late=text)
    return Strategy(names, text, options=tuple(found), value=value)


def _annotation(where: Context, target: cst.Name) -> cst.Annotation | None:
    """What type is said of an attribute where it is stored."""
    parts = (cst.Attribute, cst.AssignTarget)
    return annotation_of(next(node for node in where.ancestors(target) if not isinstance(node, parts)))


def _options_inside(seen: Stored) -> list[Option] | None:
    """What is stored, where each of it stands in what is assigned; None where a strategy is not seen."""
    found: list[Option] = []
    for where, value in seen.values:
        try:
            made = options(where, value, lambda ctx, node: strategy_name(ctx, node) is not None)
        except NotStatic:
            return None
        inside = set(where.inside(value))
        if not all(option.node in inside for option in made):
            return None
        found += made
    return list(dict.fromkeys(found))


def _with_meshes(
    value: cst.BaseExpression, found: Sequence[Option], chosen: Strategy, draft: Draft, of_group: bool
) -> Strategy | None:
    """Where the mesh of some strategies is made: in their options, or below for some of the keys of a dict.

    The mesh of a group is made below: an option does not see the group.
    """
    own = [option for option in found if (names_given(option.file, option.node) or frozenset()) & chosen.meshes]
    if of_group and chosen.meshes & HYBRID:
        return None  # two groups for some of them, one for the others
    if not any(option.eager for option in own):
        if of_group or draft.device_type == "cpu":
            return None
        return Strategy(chosen.names, "**", has_mesh=True)
    looked_up = lookup(draft.file, assigned_once(value, draft.file))
    if looked_up is None or any(option.node is looked_up.default for option in own):
        return None
    if looked_up.file.path != draft.file.path or not _is_there(looked_up.key, value, draft):
        return None
    values = {entry for _, entry in looked_up.entries}
    if any(option.node not in values for option in own):
        return None
    mine = {option.node: name for option in own for name in names_given(option.file, option.node) or ()}
    keys = {key: mine[entry] for key, entry in looked_up.entries if entry in mine}
    return _by_key(looked_up.key, keys, chosen, draft)


def _is_there(key: cst.BaseExpression, value: cst.BaseExpression, draft: Draft) -> bool:
    """Whether a key can be asked for at the call: no other value has its name there, or has it no longer."""
    if draft.file.same_meaning(key, draft.call):
        return True
    is_taken = isinstance(key, cst.Name) and isinstance(value, cst.Name) and key.value == value.value
    return is_taken and is_renamed(cst.ensure_type(value, cst.Name), draft, ARGUMENT)


def _by_key(key: cst.BaseExpression, keys: Mapping[str, str], chosen: Strategy, draft: Draft) -> Strategy | None:
    if not isinstance(front(key), cst.Name):
        return None
    return Strategy(chosen.names, "**", "", keys, draft.file.quote(key))


def _option_text(option: Option, has_mesh: bool, draft: Draft) -> str:
    """What an option becomes: `{}`, or the keyword arguments that its strategy stands for."""
    names = names_given(option.file, option.node) or frozenset()
    (name,) = names
    parts = []
    if has_mesh and STRATEGIES[name].mesh:
        parts.append(f'"mesh": {own_meshes.at_option(option, name, draft)}')
    if frees_late(names):
        parts.append('"reshard_after_forward": False')
    return _displayed(option, parts)


def _displayed(option: Option, parts: Sequence[str]) -> str:
    """A dict of them, an entry a line where it is assigned and would be too long for one line, with the comment behind
    it where that fitted.
    """
    ctx, text = option.file, f"{{{', '.join(parts)}}}"
    head = line_before(ctx, option.node)
    room = ctx.width - length_behind(ctx, option.node)
    if not isinstance(ctx.parent(option.node), cst.Assign) or len(head) + len(ctx.plain(text)) <= room:
        return text
    indent = ctx.newline + head[: len(head) - len(head.lstrip())]
    return f"{{{''.join(f'{indent}{ctx.indent}{part},' for part in parts)}{indent}}}"
