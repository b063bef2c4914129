"""`sharding_strategy`: when parameters are freed, and by which mesh they are sharded.

A strategy that the source chooses is chosen where it stands, among the arguments of `fully_shard` that it stands for;
of one that only run time knows the name is looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import cast

import libcst as cst

from codemods.api import Context, Edit, NotStatic, Origin
from codemods.reading.attribute_stores import Stored, stored
from codemods.reading.choices import Option, lookup, options, written
from codemods.reading.command_line import choices_of
from codemods.reading.layout import line_before
from codemods.tables.strategies import STRATEGIES

from . import own_meshes
from .draft import Draft, Entry, Switch, Value
from .hybrid_only import HYBRID
from .in_place import chosen_for, is_for_constructors, is_given, rename, rename_function, renamed
from .ranks import device_type

_ENUM = "ShardingStrategy"
_ARGUMENT = "sharding_strategy"


@dataclass(frozen=True)
class Strategy:
    """What is known about the strategy of one call."""

    names: frozenset[str]
    """Those that the program can pass."""
    kwargs: str = ""
    """The text of the keyword arguments that it becomes, where they are chosen at run time; else one name is known."""
    name: str = ""
    """The text of its name at run time."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """The text of each key that stands for a strategy with a mesh of its own, where it is looked up in a dict."""
    key: str = ""
    """The text of what is looked up there."""
    has_mesh: bool = False
    """Whether the choice holds the mesh already."""
    mesh: str = ""
    """The text of it, where it holds nothing else."""
    options: tuple[Option, ...] = ()
    """Where it is chosen, when each choice stands in the source."""
    value: cst.BaseExpression | None = None
    """The expression that `name` or `kwargs` is made of: a strategy, or the name of one."""
    late: str = ""
    """The text of what says so where parameters stay gathered until the backward, if that is more than a literal."""
    is_own: bool = False
    """Whether `kwargs` names a dict that is made for this call alone, each time, so that more can be put into it."""

    @property
    def known(self) -> str | None:
        """The one strategy that it can be."""
        return next(iter(self.names)) if len(self.names) == 1 and not self.kwargs else None

    @property
    def meshes(self) -> frozenset[str]:
        """The strategies that need a mesh of their own."""
        return frozenset(name for name in self.names if STRATEGIES[name].mesh)


FULL_SHARD = Strategy(frozenset({"FULL_SHARD"}))


def read_strategy(value: Value | None, draft: Draft, ranks: str) -> Strategy:
    """The strategy of a call; `ranks` is the argument by which a group or a mesh is given. Raises NotStatic."""
    if value is None:
        return FULL_SHARD
    if isinstance(value, Switch):
        return _switched(value, draft)
    if isinstance(value, Entry):
        return _of_entry(value, draft, ranks)
    fixed = _fixed(value, draft)
    if fixed is not None:
        return fixed
    if isinstance(value, cst.Attribute):
        return _in_attribute(value, draft, ranks) or _at_run_time(value, draft)
    return _in_place(value, draft, ranks) or _at_run_time(value, draft)


def _of_entry(value: Entry, draft: Draft, ranks: str) -> Strategy:
    """A strategy that comes out of a dict."""
    origins = [o for where, source in value.stored for o in where.origins(source) if not _is_text(where, source, o)]
    seen = {_name(o.file, o.node) if isinstance(o.node, cst.BaseExpression) else None for o in origins}
    names = frozenset(each or "" for each in seen) if seen and None not in seen else frozenset(STRATEGIES)
    if len(names) == 1 and (not value.may_lack or names == FULL_SHARD.names):
        return Strategy(names)
    there = _in_dict(value, draft) if draft.goes_on and not ranks else None
    if there is not None:
        return there
    name = draft.fresh("strategy", "sharding_strategy")
    draft.before.append(f"{name} = {value.text}")
    surely_given = not value.may_lack and not any(o.is_none or o.node is None for o in origins)
    text = f"{name}.name" if surely_given else f"{name} and {name}.name"
    if names & HYBRID and names - HYBRID & Strategy(names).meshes:
        names = frozenset(STRATEGIES)  # two kinds of mesh, made by a function: several calls share a dict
    return _checked(Strategy(names, "**", text), draft)


def _in_dict(value: Entry, draft: Draft) -> Strategy | None:
    """What the strategies stand for, in the dict; None where something else takes one out of it, or it is not seen."""
    if not value.is_only_given or value.may_lack or len(value.stored) != 1 or len(value.displays) != 1:
        return None
    ((where, source),) = value.stored
    found = chosen_for(where, source, lambda ctx, node: _name(ctx, node) is not None)
    element = where.parent(source)
    if found is None or not isinstance(element, cst.DictElement) or where.parent(element) not in value.displays:
        return None
    names = frozenset(_name(option.file, option.node) or "" for option in found.values)
    meshes = Strategy(names).meshes
    if {option.node for option in found.values} & draft.left:
        return None
    if meshes and device_type(draft, "a strategy with a mesh of its own") != "cuda":
        return None
    if any(option.eager and _name(option.file, option.node) in meshes for option in found.values):
        return None
    is_mesh = not _frees_late(names)
    for option in found.values:
        name = _name(option.file, option.node) or ""
        text = own_meshes.at_option(option, name, draft) if name in meshes else "None"
        parts = [f'"mesh": {text}'] if name in meshes else []
        parts += ['"reshard_after_forward": False'] if _frees_late({name}) else []
        put = text if is_mesh else _displayed(option, parts)
        draft.definitions.add(option.node)
        draft.keeps.discard(option.node)
        draft.edits.append((option.file, Edit(*option.file.span(option.node), put)))
    rename(where, found, draft, ("mesh", "fsdp_mesh") if is_mesh else ("shard_kwargs", "strategy_kwargs"))
    draft.passed[_ARGUMENT] = "mesh" if is_mesh else "**"
    return Strategy(names, "{}", has_mesh=True)


def _is_text(ctx: Context, value: cst.BaseExpression, origin: Origin) -> bool:
    """Whether it is the text that a variable holds before it holds a strategy: `if strategy == "full": strategy = …`.

    FSDP1 refused a text.
    """
    if not isinstance(value, cst.Name) or (origin.node is not None and not isinstance(origin.node, cst.Param)):
        return False
    scope = ctx.scope(value)
    return any(
        isinstance(test.left, cst.Name)
        and test.left.value == value.value
        and all(isinstance(each.comparator, cst.SimpleString) for each in test.comparisons)
        for test in ctx.inside(scope)
        if isinstance(test, cst.Comparison)
    )


def _switched(value: Switch, draft: Draft) -> Strategy:
    """A strategy that is given under a condition, or under several."""
    found = _cases(value, draft)
    names = frozenset(name for _, name in found)
    if not any(STRATEGIES[name].mesh for name in names):
        texts = [(test, _kwargs(frozenset({name}))) for test, name in found]
        if len({text for _, text in texts}) == 1:
            return Strategy(frozenset({found[0][1]}))
        kwargs = draft.fresh("fsdp_kwargs", "shard_kwargs")
        draft.before.append(f"{kwargs} = {_chosen(texts)}")
        return Strategy(names, kwargs, is_own=True)
    name = draft.fresh("strategy", "sharding_strategy")
    draft.before.append(f"{name} = {_chosen([(test, chr(34) + each + chr(34)) for test, each in found])}")
    return _checked(Strategy(names, "**", name), draft)


def _cases(value: Value | None, draft: Draft) -> list[tuple[str, str]]:
    """The conditions and the strategy under each, in order; the last one has none. Raises NotStatic."""
    if isinstance(value, Switch) and not isinstance(value.body, Switch):
        ((_, name),) = _cases(value.body, draft)
        return [(written(draft.file, value.test, {}), name), *_cases(value.orelse, draft)]
    if isinstance(value, (Switch, Entry)):
        raise NotStatic("sharding_strategy is given under a condition")
    known = FULL_SHARD.known if value is None else _known(value, draft)
    if known is None:
        raise NotStatic("sharding_strategy is given under a condition")
    return [("", known)]


def _known(value: cst.BaseExpression, draft: Draft) -> str | None:
    fixed = _fixed(value, draft)
    return fixed.known if fixed is not None else None


def _chosen(cases: Sequence[tuple[str, str]]) -> str:
    """A conditional expression."""
    return " else ".join(f"{text} if {test}" if test else text for test, text in cases)


def _name(ctx: Context, node: cst.BaseExpression) -> str | None:
    """`FULL_SHARD` for the member of the enum, and for None."""
    if isinstance(node, cst.Name) and node.value == "None":
        return "FULL_SHARD"
    made = ctx.fsdp1(node)
    name = made.split(".")[1] if made is not None and made.startswith(f"{_ENUM}.") else None
    return name if name in STRATEGIES else None


def _fixed(value: cst.BaseExpression, draft: Draft) -> Strategy | None:
    names: set[str | None] = set()
    for origin in draft.file.origins(value):
        names.add(_name(origin.file, origin.node) if isinstance(origin.node, cst.BaseExpression) else None)
    if len(names) != 1 or None in names or _parameter(value, draft) is not None:
        return None
    return Strategy(frozenset(name for name in names if name is not None))


def _parameter(value: cst.BaseExpression, draft: Draft) -> cst.Param | None:
    """The parameter of the wrapping function that the value is, if it is one: part of an interface."""
    scope = draft.file.scope(draft.call)
    if not isinstance(value, cst.Name) or not isinstance(scope, cst.FunctionDef):
        return None
    params = (*scope.params.posonly_params, *scope.params.params, *scope.params.kwonly_params)
    return next((param for param in params if param.name.value == value.value), None)


def _key(ctx: Context, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The name looked up by `ShardingStrategy[name]`, or by `getattr` or `eval` of the same meaning."""
    if isinstance(node, cst.Subscript) and len(node.slice) == 1 and ctx.fsdp1(node.value) == _ENUM:
        index = node.slice[0].slice
        return index.value if isinstance(index, cst.Index) else None
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name):
        return None
    given = [argument.value for argument in node.args]
    if node.func.value == "getattr" and len(given) == 2 and ctx.fsdp1(given[0]) == _ENUM:
        return given[1]
    return _member_named(given[0]) if node.func.value == "eval" and len(given) == 1 else None


def _member_named(text: cst.BaseExpression) -> cst.BaseExpression | None:
    """`name` of the string `f"ShardingStrategy.{name}"`."""
    parts = text.parts if isinstance(text, cst.FormattedString) else ()
    if len(parts) != 2 or not isinstance(parts[0], cst.FormattedStringText) or parts[0].value != f"{_ENUM}.":
        return None
    return parts[1].expression if isinstance(parts[1], cst.FormattedStringExpression) else None


def _names(ctx: Context, node: cst.BaseExpression) -> frozenset[str] | None:
    """The strategies that an expression can give; None when it says nothing about them."""
    name = _name(ctx, node)
    if name is not None:
        return frozenset({name})
    key = _key(ctx, node)
    known = choices_of(ctx, key) if key is not None else None
    return frozenset(known) if known and known <= STRATEGIES.keys() else None


def _kwargs(names: frozenset[str]) -> str:
    return '{"reshard_after_forward": False}' if _frees_late(names) else "{}"


def _frees_late(names: Collection[str]) -> bool:
    return bool(_late(names))


def _late(names: Collection[str]) -> list[str]:
    """Those that keep the parameters gathered until the backward."""
    return sorted((name for name in names if STRATEGIES[name].reshard_after_forward), key=_order)


def _in_place(value: cst.BaseExpression, draft: Draft, ranks: str) -> Strategy | None:
    """The same choice over keyword arguments of `fully_shard`; None where others read what is chosen from."""
    try:
        found = options(draft.file, value, lambda ctx, node: _names(ctx, node) is not None)
    except NotStatic:
        return None
    if not all(is_for_constructors(option, value, _ARGUMENT) for option in found):
        return None
    names = frozenset(name for option in found for name in _names(option.file, option.node) or ())
    chosen = Strategy(names, "**")
    made_here = chosen.meshes - HYBRID if ranks == "process_group" else chosen.meshes
    if made_here and ranks != "device_mesh":
        chosen = _with_meshes(value, found, chosen, draft, of_group=bool(ranks)) or Strategy(names)
    if not chosen.kwargs:
        return None
    is_mesh = chosen.has_mesh and not _frees_late(names) and not any(_has_type(option) for option in found)
    texts = _meshes(found, draft) if is_mesh else {o.node: _option_text(o, chosen.has_mesh, draft) for o in found}
    inside = set(draft.file.inside(value))
    for option in found:
        if option.node not in inside:
            draft.definitions.add(option.node)
            draft.edits.append((option.file, Edit(*option.file.span(option.node), texts[option.node])))
    better = ("mesh", "fsdp_mesh") if is_mesh else ("fsdp_kwargs", "shard_kwargs")
    rename_function(found, draft, _ARGUMENT, better[0])
    if not _frees_late(names) and not chosen.has_mesh:
        kwargs = ""  # all of them mean the same to `fully_shard`, but for the mesh
    elif isinstance(value, cst.Name):
        kwargs = renamed(value, found, draft, _ARGUMENT, better)
    else:
        kwargs = draft.fresh(*better)
        own: dict[cst.CSTNode, str] = {node: text for node, text in texts.items() if node in inside}
        draft.before.append(f"{kwargs} = {written(draft.file, value, own)}")
    is_own = bool(kwargs) and all(option.file.scope(option.node) is draft.file.scope(draft.call) for option in found)
    mesh, kwargs = (kwargs, "{}") if is_mesh else ("", kwargs or "{}")
    known = Strategy(names, kwargs, "", chosen.keys, chosen.key, chosen.has_mesh, mesh, tuple(found), value)
    return replace(known, is_own=is_own)


def _has_type(option: Option) -> bool:
    """Whether an annotation says what the option is, where it is assigned or returned."""
    ctx, scope = option.file, option.file.scope(option.node)
    is_returned = any(isinstance(node, cst.Return) for node in ctx.ancestors(option.node))
    if is_returned and isinstance(scope, cst.FunctionDef) and scope.returns is not None:
        return True
    return any(isinstance(node, cst.AnnAssign) for node in islice(ctx.ancestors(option.node), 3))


def _meshes(found: Sequence[Option], draft: Draft) -> dict[cst.BaseExpression, str]:
    """A mesh in the place of each strategy that has one, else None."""
    texts = {option.node: "None" for option in found}
    own = {o: n for o in found for n in _names(o.file, o.node) or () if STRATEGIES[n].mesh}
    hybrid = [option for option, name in own.items() if name in HYBRID]
    for option, name in own.items():
        texts[option.node] = own_meshes.expression(name, draft)
        put = own_meshes.in_place(option, name, draft) if hybrid == [option] else None
        if put is not None:
            texts[option.node], above = put
            draft.edits.append((option.file, above))
    return texts


def _in_attribute(value: cst.Attribute, draft: Draft, ranks: str) -> Strategy | None:
    """An attribute that only constructor calls read takes what its strategies stand for; None for any other.

    All of them or none are hybrid ones, whose mesh is made at the call: what sets the attribute may run before there is
    a process group.
    """
    seen = stored(draft.file, value.attr.value)
    if seen is None or not all(is_given(where, read, _ARGUMENT) for where, read in seen.reads):
        return None
    found = _options_inside(seen)
    names = frozenset(name for option in found or () for name in _names(option.file, option.node) or ())
    meshes = {name for name in names if STRATEGIES[name].mesh}
    if not found or not _frees_late(names) or (meshes and (ranks or not names <= HYBRID)):
        return None
    if len(names) > 1 and any(_is_annotated(where, target) for where, target in seen.targets):
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
        statement = where.parent(target)
        draft.edits.append((where, Edit(*where.span(target), name)))
        if isinstance(statement, cst.AnnAssign):
            draft.edits.append((where, Edit(*where.span(statement.annotation.annotation), "bool")))
    text = f"{draft.file.quote(value.value)}.{name}"
    if len(names) == 1:
        return Strategy(names, late=text)
    return Strategy(names, text, options=tuple(found), value=value)


def _is_annotated(where: Context, target: cst.Name) -> bool:
    return any(isinstance(node, cst.AnnAssign) for node in islice(where.ancestors(target), 2))


def _options_inside(seen: Stored) -> list[Option] | None:
    """What is stored, where each of it stands in what is assigned; None where a strategy is not seen."""
    found: list[Option] = []
    for where, value in seen.values:
        try:
            made = options(where, value, lambda ctx, node: _name(ctx, node) is not None)
        except NotStatic:
            return None
        inside = set(where.inside(value))
        if not all(option.node in inside for option in made):
            return None
        found += made
    return list(dict.fromkeys(found))


def fits_shape(option: Option, mesh: Collection[cst.CSTNode]) -> bool:
    """Whether a strategy is chosen only where `mesh.ndim` is what it needs: two for a hybrid one, else one.

    `mesh` are the places where the mesh is made.
    """
    names = _names(option.file, option.node) or frozenset()
    if not names <= HYBRID and (names & HYBRID or _own_mesh_of_one(names)):
        return False
    wanted, inner = 2 if names <= HYBRID else 1, cast(cst.CSTNode, option.node)
    for outer in option.file.ancestors(option.node):
        if isinstance(outer, cst.If):
            asked = _dimensions_asked(option.file, outer.test, mesh)
            if asked and (asked == wanted) == (inner is outer.body):
                return True
        inner = outer
    return False


def _own_mesh_of_one(names: Collection[str]) -> bool:
    return any(STRATEGIES[name].mesh for name in names)


def _dimensions_asked(ctx: Context, test: cst.BaseExpression, mesh: Collection[cst.CSTNode]) -> int:
    """The number in `mesh.ndim == 2`; 0 for any other test."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return 0
    (compared,) = test.comparisons
    number, left = compared.comparator, test.left
    if not isinstance(left, cst.Attribute) or left.attr.value != "ndim" or not isinstance(compared.operator, cst.Equal):
        return 0
    made = {origin.node for origin in ctx.origins(left.value)}
    is_mesh = bool(made) and made <= set(mesh)
    return number.evaluated_value if is_mesh and isinstance(number, cst.Integer) and number.value in {"1", "2"} else 0


def _with_meshes(
    value: cst.BaseExpression, found: Sequence[Option], chosen: Strategy, draft: Draft, of_group: bool
) -> Strategy | None:
    """Where the mesh of some strategies is made: in their options, or below for some of the keys of a dict.

    The mesh of a group is made below: an option does not see the group.
    """
    own = [option for option in found if (_names(option.file, option.node) or frozenset()) & chosen.meshes]
    if of_group and chosen.meshes & HYBRID:
        return None  # two groups for some of them, one for the others
    if not any(option.eager or _key(option.file, option.node) is not None for option in own):
        if of_group or draft.device_type == "cpu" or any(option.file.path != draft.file.path for option in own):
            return None
        return Strategy(chosen.names, "**", has_mesh=True)
    by_name = _key(draft.file, value)
    if by_name is not None:
        return _by_key(by_name, {f'"{name}"': name for name in sorted(chosen.meshes)}, chosen, draft)
    looked_up = lookup(draft.file, _assigned_once(value, draft.file))
    if looked_up is None or any(option.node is looked_up.default for option in own):
        return None
    if looked_up.file.path != draft.file.path or not draft.file.same_meaning(looked_up.key, draft.call):
        return None
    values = {entry for _, entry in looked_up.entries}
    if any(option.node not in values for option in own):
        return None
    mine = {option.node: name for option in own for name in _names(option.file, option.node) or ()}
    keys = {key: mine[entry] for key, entry in looked_up.entries if entry in mine}
    return _by_key(looked_up.key, keys, chosen, draft)


def _by_key(key: cst.BaseExpression, keys: Mapping[str, str], chosen: Strategy, draft: Draft) -> Strategy | None:
    part = key
    while isinstance(part, cst.Attribute):
        part = part.value
    if not isinstance(part, cst.Name):
        return None
    return Strategy(chosen.names, "**", "", keys, draft.file.quote(key))


def _option_text(option: Option, has_mesh: bool, draft: Draft) -> str:
    """What an option becomes: `{}`, or the keyword arguments that its strategy stands for."""
    names = _names(option.file, option.node) or frozenset()
    key = _key(option.file, option.node)
    if key is not None:
        entries = ", ".join(f'"{name}": {_kwargs(frozenset({name}))}' for name in sorted(names, key=_order))
        return f"{{{entries}}}[{option.file.quote(key)}]"
    (name,) = names
    parts = []
    if has_mesh and STRATEGIES[name].mesh:
        parts.append(f'"mesh": {own_meshes.expression(name, draft)}')
    if _frees_late(names):
        parts.append('"reshard_after_forward": False')
    return _displayed(option, parts)


def _displayed(option: Option, parts: Sequence[str]) -> str:
    """A dict of them, an entry a line where it is assigned and would be too long for one line."""
    ctx, text = option.file, f"{{{', '.join(parts)}}}"
    head = line_before(ctx, option.node)
    if not isinstance(ctx.parent(option.node), cst.Assign) or len(head) + len(ctx.plain(text)) <= ctx.width:
        return text
    indent = ctx.newline + head[: len(head) - len(head.lstrip())]
    return f"{{{''.join(f'{indent}{ctx.indent}{part},' for part in parts)}{indent}}}"


def _order(name: str) -> int:
    return list(STRATEGIES).index(name)


def _at_run_time(value: cst.BaseExpression, draft: Draft) -> Strategy:
    """Look at the name of the strategy that is passed."""
    ctx = draft.file
    origins = ctx.origins(value)
    draft.keeps.update(origin.node for origin in origins if origin.node is not None)
    seen = {_name(o.file, o.node) if isinstance(o.node, cst.BaseExpression) else None for o in origins}
    parameter = _parameter(value, draft)
    if parameter is not None and parameter.default is not None:
        seen.add(_name(ctx, parameter.default))
    found = _stored_origins(ctx, value.attr.value) if isinstance(value, cst.Attribute) else []
    if isinstance(value, cst.Attribute):
        seen = {_name(o.file, o.node) if isinstance(o.node, cst.BaseExpression) else None for o in found} or {None}
    is_followed = None not in seen
    names = frozenset(n for n in seen if n is not None) if is_followed else frozenset(STRATEGIES)
    if parameter is not None and _is_handed_on(draft):
        names = frozenset(STRATEGIES)  # `Component("model", wrap, WrapConfig)`: a registry calls it with any
    text, key = ctx.quote(value), _key(ctx, _assigned_once(value, ctx))
    if key is not None and (isinstance(key, (cst.Name, cst.Attribute)) or _key(ctx, value) is not None):
        if ctx.same_meaning(key, draft.call):
            return _checked(Strategy(names, "**", ctx.quote(key), value=key), draft)
    if not isinstance(value, (cst.Name, cst.Attribute)):
        text = draft.fresh("strategy", "sharding_strategy")
        draft.before.append(f"{text} = {written(ctx, value, {})}")
    surely_given = isinstance(value, (cst.Subscript, cst.Call)) and not any(o.is_none for o in origins)
    surely_given |= bool(found) and is_followed and not any(o.is_none for o in found)
    name = f"{text}.name" if surely_given or _is_given(value, draft) else f"{text} and {text}.name"
    return _checked(Strategy(names, "**", name, value=value), draft)


def _is_handed_on(draft: Draft) -> bool:
    """Whether the wrapping function is used as a value, so that calls may pass what is not seen."""
    scope = draft.file.scope(draft.call)
    name = cst.ensure_type(scope, cst.FunctionDef).name.value
    if any(_is_value(where, node) for where, node in draft.file.attributes(name)):
        return True
    names = ((where, node) for where in draft.file.files(name) for node in where.nodes(cst.Name))
    return any(node.value == name and _is_value(where, node) for where, node in names)


def _is_value(where: Context, node: cst.Name | cst.Attribute) -> bool:
    holder = where.parent(node)
    if isinstance(holder, cst.Arg):
        return holder.value is node
    return isinstance(holder, (cst.Assign, cst.DictElement, cst.Element, cst.Return))


def _stored_origins(ctx: Context, attribute: str) -> list[Origin]:
    """Where the values are made that attributes of a name hold; none where something may set another one unseen."""
    found = stored(ctx, attribute)
    return [origin for where, value in (found.values if found is not None else ()) for origin in where.origins(value)]


def _is_given(value: cst.BaseExpression, draft: Draft) -> bool:
    """Whether it is for sure no None."""
    origins = draft.file.origins(value)
    parameter = _parameter(value, draft)
    defaults_to_none = parameter is not None and (
        isinstance(parameter.default, cst.Name) and parameter.default.value == "None"
    )
    seen = all(isinstance(o.node, cst.BaseExpression) and not o.is_none for o in origins)
    return seen and not defaults_to_none


def _assigned_once(value: cst.BaseExpression, ctx: Context) -> cst.BaseExpression:
    """What a variable is set to, where that is one expression of this file."""
    bound = ctx.bound(value) if isinstance(value, cst.Name) else None
    return bound[0][1] if bound is not None and len(bound) == 1 and bound[0][0].path == ctx.path else value


def _checked(strategy: Strategy, draft: Draft) -> Strategy:
    """With the text of its keyword arguments."""
    if strategy.names < STRATEGIES.keys():
        keys = {f'"{name}"': name for name in STRATEGIES if name in strategy.meshes}  # in the order of the table
        strategy = replace(strategy, key=strategy.name, keys=keys)
    if not _frees_late(strategy.names):
        return replace(strategy, kwargs="{}")
    if not strategy.meshes or strategy.keys:
        kwargs = draft.fresh("fsdp_kwargs", "shard_kwargs")
        # By key, so that a strategy that nobody in the program passes is a KeyError and not a FULL_SHARD.
        entries = ["None: {}"] if " and " in strategy.name else []
        entries += [
            f'"{name}": {_kwargs(frozenset({name}))}' for name in sorted({*strategy.names, "FULL_SHARD"}, key=_order)
        ]
        draft.before.append(draft.looked_up(kwargs, entries, strategy.name))
        return replace(strategy, kwargs=kwargs, is_own=True)
    kwargs = draft.fresh("fsdp_kwargs", "shard_kwargs")
    late = f"{strategy.name} in ({', '.join(f'{chr(34)}{name}{chr(34)}' for name in _late(strategy.names))})"
    line = f'{kwargs} = {{"reshard_after_forward": False}} if {late} else {{}}'
    if not draft.fits(line):
        line = f'{kwargs} = {{}}\nif {late}:\n    {kwargs}["reshard_after_forward"] = False'
    draft.before.append(line)
    return replace(strategy, kwargs=kwargs, is_own=True)


def translate_strategy(strategy: Strategy, draft: Draft) -> None:
    """When parameters are freed; over which ranks they lie is said by the mesh."""
    if strategy.known is not None:
        if _frees_late(strategy.names):
            draft.common_kwargs["reshard_after_forward"] = strategy.late or "False"
    elif strategy.kwargs != "{}":
        draft.common_kwargs["**"] = strategy.kwargs
        draft.takes_more = strategy.is_own and strategy.kwargs.isidentifier()
