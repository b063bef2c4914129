"""`sharding_strategy`: when parameters are freed, and by which mesh they are sharded.

A strategy that the source chooses is chosen where it stands, among the arguments of `fully_shard` that it stands for;
of one that only run time knows the name is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from codemods.api import Context, NotStatic, Origin
from codemods.reading.values.choices import written
from codemods.tables.strategies import STRATEGIES

from ..draft import Draft, Entry, Switch, Value
from ..mesh.hybrid_only import HYBRID
from ..mesh.ranks import Ranks
from .at_run_time import look_at_run_time, named, with_kwargs
from .choices import choose_in_attribute, choose_in_dict, choose_in_place, names_seen
from .names import FULL_SHARD, Strategy, frees_late, kwargs_for, names_of, own_parameter


def read_strategy(value: Value | None, draft: Draft, given: Ranks | None) -> Strategy:
    """The strategy of a call that is `given` a group or a mesh, or neither. Raises NotStatic."""
    names = frozenset(STRATEGIES) - (HYBRID if given is not None and given.is_one_group else frozenset())
    if value is None:
        return FULL_SHARD
    if isinstance(value, Switch):
        return _switched(value, draft, given)
    if isinstance(value, Entry):
        return _of_entry(value, draft, given)
    fixed = _fixed(value, draft)
    if fixed is not None:
        return fixed
    if isinstance(value, cst.Attribute):
        return choose_in_attribute(value, draft, given) or look_at_run_time(value, draft, given, names)
    chosen = choose_in_place(value, draft, given)
    return chosen or look_at_run_time(value, draft, given, names & names_seen(value, draft))


def _of_entry(value: Entry, draft: Draft, given: Ranks | None) -> Strategy:
    """A strategy that comes out of a dict."""
    origins = [o for where, source in value.stored for o in where.origins(source) if not _is_text(where, source, o)]
    seen = names_of(origins)
    names = frozenset(each or "" for each in seen) if seen and None not in seen else frozenset(STRATEGIES)
    if len(names) == 1 and (not value.may_lack or names == FULL_SHARD.names):
        return Strategy(names)
    there = choose_in_dict(value, draft) if draft.goes_on and given is None else None
    if there is not None:
        return there
    name = draft.held(value.text, "strategy", "sharding_strategy")
    surely_given = not value.may_lack and not any(o.is_none or o.node is None for o in origins)
    if names & HYBRID and names - HYBRID & Strategy(names).meshes:
        names = frozenset(STRATEGIES)  # two kinds of mesh, made by a function: several calls share a dict
    return with_kwargs(named(names, name, surely_given), draft, given)


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


def _switched(value: Switch, draft: Draft, given: Ranks | None) -> Strategy:
    """A strategy that is given under a condition, or under several."""
    found = _cases(value, draft)
    names = frozenset(name for _, name in found)
    if not any(STRATEGIES[name].mesh for name in names):
        texts = [(test, kwargs_for(frozenset({name}))) for test, name in found]
        if len({text for _, text in texts}) == 1:
            return Strategy(frozenset({found[0][1]}))
        return Strategy(names, draft.held(_chosen(texts), "fsdp_kwargs", "shard_kwargs"), is_own=True)
    quoted = [(test, f'"{each}"') for test, each in found]
    name = draft.held(_chosen(quoted), "strategy", "sharding_strategy")
    return with_kwargs(Strategy(names, "**", name), draft, given)


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


def _fixed(value: cst.BaseExpression, draft: Draft) -> Strategy | None:
    names = names_of(draft.file.origins(value))
    if len(names) != 1 or None in names or own_parameter(value, draft) is not None:
        return None
    return Strategy(frozenset(name for name in names if name is not None))


def translate_strategy(strategy: Strategy, draft: Draft) -> None:
    """When parameters are freed; over which ranks they lie is said by the mesh."""
    if strategy.known is not None:
        if frees_late(strategy.names):
            draft.common_kwargs["reshard_after_forward"] = strategy.late or "False"
    elif strategy.kwargs != "{}":
        draft.common_kwargs["**"] = strategy.kwargs
        draft.takes_more = strategy.is_own and strategy.kwargs.isidentifier()
