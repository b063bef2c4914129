"""The arguments that a `**kwargs` stands for."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from codemods.api import Context, NotStatic
from codemods.reading.words import is_name

from .draft import Switch, Value


@dataclass
class Spread:
    """The arguments that a splat stands for."""

    values: dict[str, Value] = field(default_factory=dict)
    dead: list[cst.CSTNode] = field(default_factory=list)
    """The statements that only make them."""
    made: set[cst.CSTNode] = field(default_factory=set)
    """The displays that they stand in."""
    keeps: set[cst.CSTNode] = field(default_factory=set)
    """Where values are made that are read at run time."""
    freed: set[str] = field(default_factory=set)
    """The variables that nothing else uses."""
    name: str = ""
    """That of the dict at the call, where it is a new one."""
    made_by: str = ""
    """The text of what makes it, in that case."""
    rest: str = ""
    """The `**kwargs` of the function around, which no call of the program gives anything."""

    @property
    def entries(self) -> dict[cst.CSTNode, str]:
        """The argument that each value is."""
        return {node: name for name, value in self.values.items() for node in _nodes(value)}

    def add(self, other: Spread) -> None:
        """More arguments."""
        given = sorted(name for name, value in other.values.items() if not is_name(value, "None"))
        refused = [name for name in given if name.startswith("ignored_") and name != "ignored_modules"]
        if refused:  # they are looked for in the call itself, by the rules that gather parameters
            raise NotStatic(f"{refused[0]} comes by `**`")
        self.values.update(other.values)
        self.dead += other.dead
        self.made |= other.made
        self.freed |= other.freed
        self.keeps |= other.keeps
        self.rest = self.rest or other.rest
        if self.name and other.name:
            raise NotStatic("arguments come from several calls by `**`")
        self.name, self.made_by = self.name or other.name, self.made_by or other.made_by


def unseen(ctx: Context, value: cst.BaseExpression) -> NotStatic:
    """What stands in the way of a splat that the program does not spell out."""
    return NotStatic(f"arguments come from `**{ctx.code(value)}`")


def _nodes(value: Value | None) -> list[cst.CSTNode]:
    if isinstance(value, Switch):
        return [*_nodes(value.body), *_nodes(value.orelse)]
    return [value] if isinstance(value, cst.CSTNode) else []
