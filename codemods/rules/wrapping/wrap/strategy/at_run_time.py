"""A strategy that only run time knows: its name is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from codemods.api import SUPPORT, Context, NotStatic, Origin
from codemods.reading.code.words import last_name
from codemods.reading.values.attribute_stores import stored
from codemods.reading.values.choices import written
from codemods.tables.strategies import STRATEGIES

from ..draft import Draft
from ..mesh.ranks import CUDA, Ranks, device_type
from .names import (
    Strategy,
    assigned_once,
    freed_late,
    frees_late,
    in_table_order,
    kwargs_for,
    name_looked_up,
    names_of,
    own_parameter,
    strategy_name,
)


def look_at_run_time(value: cst.BaseExpression, draft: Draft, given: Ranks | None, known: frozenset[str]) -> Strategy:
    """Look at the name of the strategy that is passed; FSDP1 refused any but the `known` ones."""
    ctx = draft.file
    origins = ctx.origins(value)
    draft.keeps.update(origin.node for origin in origins if origin.node is not None)
    seen = names_of(origins)
    parameter = own_parameter(value, draft)
    if parameter is not None and parameter.default is not None:
        seen.add(strategy_name(ctx, parameter.default))
    found = _stored_origins(ctx, value.attr.value) if isinstance(value, cst.Attribute) else []
    if isinstance(value, cst.Attribute):
        seen = names_of(found) or {None}
    is_followed = None not in seen
    names = frozenset(n for n in seen if n is not None) if is_followed else frozenset(STRATEGIES)
    if parameter is not None and _is_handed_on(draft):
        names = frozenset(STRATEGIES)  # `Component("model", wrap, WrapConfig)`: a registry calls it with any
    names = names & known or names
    text, key = ctx.quote(value), name_looked_up(ctx, assigned_once(value, ctx))
    if key is not None and (isinstance(key, (cst.Name, cst.Attribute)) or name_looked_up(ctx, value) is not None):
        if ctx.same_meaning(key, draft.call):
            chosen = names & (argument_choices(key, ctx) or names) or names
            looked_up = with_kwargs(Strategy(chosen, "**", ctx.quote(key), value=key), draft, given)
            refuses = looked_up.keys or looked_up.has_mesh or not looked_up.meshes
            if looked_up.is_own and refuses:  # what is no name
                draft.keeps.discard(assigned_once(value, ctx))
            return looked_up
    if not isinstance(value, (cst.Name, cst.Attribute)):
        text = draft.held(written(ctx, value, {}), "strategy", "sharding_strategy")
    surely_given = isinstance(value, (cst.Subscript, cst.Call)) and not any(o.is_none for o in origins)
    surely_given |= bool(found) and is_followed and not any(o.is_none for o in found)
    surely_given = (surely_given or _is_given(value, draft)) and not _may_miss(assigned_once(value, ctx))
    return with_kwargs(named(names, text, surely_given, value), draft, given)


def named(names: frozenset[str], text: str, surely_given: bool, value: cst.BaseExpression | None = None) -> Strategy:
    """The strategy of a text, of which the name is asked."""
    if surely_given:
        return Strategy(names, "**", f"{text}.name", value=value)
    return Strategy(names, "**", f"{text} and {text}.name", value=value, member=text)


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


def _may_miss(value: cst.BaseExpression) -> bool:
    """`table.get(key)`, which is None for an unknown key; FSDP1 took that for FULL_SHARD."""
    is_get = isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "get"
    return is_get and len(cst.ensure_type(value, cst.Call).args) == 1


def _is_given(value: cst.BaseExpression, draft: Draft) -> bool:
    """Whether it is for sure no None."""
    origins = draft.file.origins(value)
    parameter = own_parameter(value, draft)
    defaults_to_none = parameter is not None and (
        isinstance(parameter.default, cst.Name) and parameter.default.value == "None"
    )
    seen = all(isinstance(o.node, cst.BaseExpression) and not o.is_none for o in origins)
    return seen and not defaults_to_none


def with_kwargs(strategy: Strategy, draft: Draft, given: Ranks | None) -> Strategy:
    """With the text of its keyword arguments, with the mesh where any strategy can be passed, and no ranks are."""
    if strategy.names < STRATEGIES.keys():
        keys = {f'"{name}"': name for name in STRATEGIES if name in strategy.meshes}  # in the order of the table
        strategy = replace(strategy, key=strategy.name, keys=keys)
    if not frees_late(strategy.names):
        return replace(strategy, kwargs="{}")
    if not strategy.meshes or strategy.keys:
        kwargs = draft.fresh("fsdp_kwargs", "shard_kwargs")
        # By key, so that a strategy that nobody in the program passes is a KeyError and not a FULL_SHARD.
        entries = ["None: {}"] if strategy.member else []
        entries += [
            f'"{name}": {kwargs_for(frozenset({name}))}'
            for name in sorted({*strategy.names, "FULL_SHARD"}, key=in_table_order)
        ]
        draft.before.append(draft.looked_up(kwargs, entries, strategy.name))
        return replace(strategy, kwargs=kwargs, is_own=True)
    kwargs = draft.fresh("fsdp_kwargs", "shard_kwargs")
    if given is None:
        draft.before.append(draft.assigned(kwargs, *_by_function(strategy, draft)))
        return replace(strategy, kwargs=kwargs, has_mesh=True, is_own=True)
    late = f"{strategy.name} in ({', '.join(f'{chr(34)}{name}{chr(34)}' for name in freed_late(strategy.names))})"
    line = f'{kwargs} = {{"reshard_after_forward": False}} if {late} else {{}}'
    if not draft.fits(line):
        line = f'{kwargs} = {{}}\nif {late}:\n    {kwargs}["reshard_after_forward"] = False'
    draft.before.append(line)
    return replace(strategy, kwargs=kwargs, is_own=True)


def _by_function(strategy: Strategy, draft: Draft) -> tuple[str, list[str]]:
    """The function that says what a name stands for, and refuses what is none, and what it is given."""
    device = device_type(draft)
    if draft.device_type == "cpu":
        raise NotStatic("a strategy with a mesh of its own, on the CPU")
    return draft.imported(SUPPORT, "strategy_kwargs"), [strategy.sure_name, *([] if device == CUDA else [device])]


# The texts that an option of the command line can be: `parser.add_argument("--strategy", choices=[...])`.


def argument_choices(value: cst.CSTNode, ctx: Context) -> frozenset[str] | None:
    """What `args.strategy` can be, where each parser of the program says so, and nothing else sets it.

    None where that is not seen. Where run time sets it by a name, it may be another text all the same.
    """
    if not isinstance(value, cst.Attribute):
        return None
    made = ctx.origins(value.value)
    if not made or not all(isinstance(o.node, cst.Call) and last_name(o.node.func) == "parse_args" for o in made):
        return None
    name = value.attr.value
    if any(isinstance(where.parent(node), cst.AssignTarget) for where, node in ctx.attributes(name)):
        return None
    found = [_texts(where, call) for where, call in _options(name, ctx)]
    return frozenset().union(*(each for each in found if each)) if found and all(found) else None


def _options(name: str, ctx: Context) -> Iterator[tuple[Context, cst.Call]]:
    """The calls that add an option which is stored under a name."""
    for where in ctx.files("add_argument"):
        for call in where.nodes(cst.Call):
            if last_name(call.func) == "add_argument" and name in _stored_as(call):
                yield where, call


def _stored_as(call: cst.Call) -> list[str]:
    """`strategy` for `"--strategy"` or `dest="strategy"`; both, where it has both."""
    texts = [a.value for a in call.args if a.keyword is None or a.keyword.value == "dest"]
    names = [str(text.evaluated_value) for text in texts if isinstance(text, cst.SimpleString)]
    return [each.lstrip("-").replace("-", "_") for each in names]


def _texts(ctx: Context, call: cst.Call) -> frozenset[str]:
    """What `choices` says; nothing where that is not all texts."""
    given = [a.value for a in call.args if a.keyword is not None and a.keyword.value == "choices"]
    made = [origin.node for value in given for origin in ctx.origins(value)]
    if len(made) != 1 or not isinstance(made[0], (cst.List, cst.Tuple, cst.Set)):
        return frozenset()
    elements = [element.value for element in made[0].elements]
    texts = [str(each.evaluated_value) for each in elements if isinstance(each, cst.SimpleString)]
    return frozenset(texts) if len(texts) == len(elements) else frozenset()
