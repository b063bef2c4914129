"""What is known of the sharding strategy of a call, and the names that say which it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.code.enclosing import bound_once
from codemods.reading.values.choices import Option
from codemods.tables.strategies import STRATEGIES

from ..draft import Draft

_ENUM = "ShardingStrategy"

ARGUMENT = "sharding_strategy"


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
    member: str = ""
    """The text of the strategy that has the name, where it may be None, and `name` asks for that."""

    @property
    def known(self) -> str | None:
        """The one strategy that it can be."""
        return next(iter(self.names)) if len(self.names) == 1 and not self.kwargs else None

    @property
    def sure_name(self) -> str:
        """The text of its name, where None is FULL_SHARD as it was to FSDP1."""
        return f'{self.member}.name if {self.member} else "FULL_SHARD"' if self.member else self.name

    @property
    def meshes(self) -> frozenset[str]:
        """The strategies that need a mesh of their own."""
        return frozenset(name for name in self.names if STRATEGIES[name].mesh)


FULL_SHARD = Strategy(frozenset({"FULL_SHARD"}))


def strategy_name(ctx: Context, node: cst.BaseExpression) -> str | None:
    """`FULL_SHARD` for the member of the enum, and for None."""
    if isinstance(node, cst.Name) and node.value == "None":
        return "FULL_SHARD"
    made = ctx.fsdp1(node)
    name = made.split(".")[1] if made is not None and made.startswith(f"{_ENUM}.") else None
    return name if name in STRATEGIES else None


def names_of(origins: Iterable[Origin]) -> set[str | None]:
    """Those that a value can be; None among them where one of its origins is no strategy, or not seen."""
    return {strategy_name(o.file, o.node) if isinstance(o.node, cst.BaseExpression) else None for o in origins}


def own_parameter(value: cst.BaseExpression, draft: Draft) -> cst.Param | None:
    """The parameter of the wrapping function that the value is, if it is one: part of an interface."""
    scope = draft.file.scope(draft.call)
    if not isinstance(value, cst.Name) or not isinstance(scope, cst.FunctionDef):
        return None
    params = (*scope.params.posonly_params, *scope.params.params, *scope.params.kwonly_params)
    return next((param for param in params if param.name.value == value.value), None)


def name_looked_up(ctx: Context, node: cst.BaseExpression) -> cst.BaseExpression | None:
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


def names_given(ctx: Context, node: cst.BaseExpression) -> frozenset[str] | None:
    """The strategies that an expression can give; None when it says nothing about them."""
    name = strategy_name(ctx, node)
    return frozenset({name}) if name is not None else None


def kwargs_for(names: frozenset[str]) -> str:
    """The text of the arguments of `fully_shard` that these strategies stand for, but for the mesh."""
    return '{"reshard_after_forward": False}' if frees_late(names) else "{}"


def frees_late(names: Collection[str]) -> bool:
    """Whether parameters stay gathered until the backward under one of them."""
    return bool(freed_late(names))


def freed_late(names: Collection[str]) -> list[str]:
    """Those that keep the parameters gathered until the backward."""
    return sorted((name for name in names if STRATEGIES[name].reshard_after_forward), key=in_table_order)


def in_table_order(name: str) -> int:
    """A key to sort by: the place of a strategy in the table."""
    return list(STRATEGIES).index(name)


def assigned_once(value: cst.BaseExpression, ctx: Context) -> cst.BaseExpression:
    """What a variable is set to, where that is one expression of this file."""
    return bound_once(ctx, value) or value
