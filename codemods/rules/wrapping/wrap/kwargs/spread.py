"""The arguments that a `**kwargs` stands for."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from codemods.api import Context, NotStatic
from codemods.reading.code.shapes import is_call_to
from codemods.reading.code.words import is_name

from ..draft import Entry, Switch, Value


@dataclass
class Spread:
    """The arguments that a splat stands for."""

    values: dict[str, Value] = field(default_factory=dict)
    needless: dict[str, Entry] = field(default_factory=dict)
    """What FSDP2 needs none of, and the call says besides: the dict has to lose it as for the other calls."""
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
    open: dict[str, frozenset[str]] = field(default_factory=dict)
    """The texts of the dicts that may hold more than is seen, and what each may hold; the rest is refused."""
    closed: dict[str, frozenset[str]] = field(default_factory=dict)
    """The same for the `**kwargs` of functions, which hold all that is passed, and nothing that is None."""
    rest: str = ""
    """The `**kwargs` of the function around, which no call of the program gives anything."""

    @property
    def entries(self) -> dict[cst.CSTNode, str]:
        """The argument that each value is."""
        return {node: name for name, value in self.values.items() for node in _nodes(value)}

    def put(self, other: Spread) -> None:
        """Entries of another dict take the place of those that are there.

        Raises NotStatic where one that may not be there would, and for a dict that has to be made first.
        """
        if other.name:
            raise NotStatic(f"arguments come from `{other.made_by}`")
        for name, value in other.values.items():
            is_there = not isinstance(value, (Entry, Switch)) or (isinstance(value, Entry) and not value.may_lack)
            if name in self.values and not is_there:
                raise NotStatic(f"{name} may be put into a dict that has it")
            self.values[name] = value
        self.open.update(other.open)
        self.closed.update(other.closed)

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
        self.open.update(other.open)
        self.closed.update(other.closed)
        self.name, self.made_by = self.name or other.name, self.made_by or other.made_by


def unseen(ctx: Context, value: cst.BaseExpression) -> NotStatic:
    """What stands in the way of a splat that the program does not spell out."""
    return NotStatic(f"arguments come from `**{ctx.code(value)}`")


def copied_dict(ctx: Context, value: cst.CSTNode | None) -> cst.BaseExpression | None:
    """`base` of `dict(base)`, `base.copy()` and `copy.deepcopy(base)`."""
    if not isinstance(value, cst.Call):
        return None
    if not value.args and isinstance(value.func, cst.Attribute) and value.func.attr.value == "copy":
        return value.func.value
    is_copy = is_call_to(value, "dict") or ctx.dotted(value.func) in {"copy.copy", "copy.deepcopy"}
    only = value.args[0] if len(value.args) == 1 else None
    return only.value if is_copy and only is not None and only.keyword is None and not only.star else None


def _nodes(value: Value | None) -> list[cst.CSTNode]:
    if isinstance(value, Switch):
        return [*_nodes(value.body), *_nodes(value.orelse)]
    return [value] if isinstance(value, cst.CSTNode) else []
