"""Which models a program shards with `fully_shard`, each with the calls for its parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, Edit
from codemods.reading.places import base, bound, place
from codemods.reading.sharding import comes_before, known_as
from codemods.reading.wrapped import looped_over, wrapped_module


@dataclass(frozen=True)
class Unit:
    """One call, for a part of a model."""

    call: cst.Call
    loop: cst.For | None
    """The loop whose variable is sharded."""


@dataclass(frozen=True)
class Sharding:
    """One model that is sharded: the call for all of it, and those above in the same function for its parts."""

    file: Context
    root: cst.Call
    model: str
    """The place of the model: `model`, `self.actor`."""
    units: tuple[Unit, ...]
    has_twin: bool
    """Whether another way through the function shards it, too."""

    @property
    def statement(self) -> cst.SimpleStatementLine | None:
        """The statement of the root's call, where that is all of it: called, bound to a name, or returned."""
        small = self.file.parent(self.root)
        line = self.file.parent(small) if isinstance(small, (cst.Expr, cst.Assign, cst.Return)) else None
        return line if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None

    def below(self, lines: Sequence[str]) -> list[Edit]:
        """Edits that put lines below the statement of the root; what it returns is returned behind them.

        Only where there is a `statement`.
        """
        file, line = self.file, self.statement
        assert line is not None
        start, end = file.whole_lines(line)
        indent = file.text[start : file.span(line)[0]]
        small, edits = line.body[0], []
        if isinstance(small, cst.Return):
            edits.append(Edit(file.span(small)[0], file.span(self.root)[0], ""))
            lines = [*lines, f"return {self.model}"]
        first = "" if file.text[:end].endswith("\n") else file.newline
        return [*edits, Edit(end, end, first + "".join(f"{indent}{each}{file.newline}" for each in lines))]

    @property
    def known_as(self) -> str:
        """The name that the program goes on with."""
        return known_as(self.file, self.root, self.model)


def shardings(ctx: Context) -> list[Sharding]:
    """The models that a file shards, in the order of the text."""
    calls = [(call, *_place(ctx, call)) for call in ctx.nodes(cst.Call) if _is_fully_shard(ctx, call)]
    whole = [(call, where) for call, where, loop in calls if loop is None and where is not None]
    roots = [
        (call, where)
        for call, where in whole
        if not any(where.startswith(f"{outer}.") and comes_before(ctx, call, other) for other, outer in whole)
    ]
    return [
        Sharding(
            ctx,
            root,
            model,
            tuple(
                Unit(call, loop)
                for call, where, loop in calls
                if where is not None
                and (where.startswith(f"{model}.") or (where == model and loop is not None))
                and comes_before(ctx, call, root)
            ),
            any(where == model and call is not root and ctx.scope(call) is ctx.scope(root) for call, where in roots),
        )
        for root, model in roots
    ]


def loops_without_root(ctx: Context) -> list[cst.Call]:
    """Calls in a loop over modules to which no call for the whole model belongs: it may be one of them."""
    known = {unit.call for sharding in shardings(ctx) for unit in sharding.units}
    calls = [call for call in ctx.nodes(cst.Call) if _is_fully_shard(ctx, call)]
    return [call for call in calls if call not in known and _place(ctx, call)[1] is not None]


def argument(call: cst.Call, name: str) -> cst.Arg | None:
    """The argument that is passed by this name."""
    return next((each for each in call.args if each.keyword is not None and each.keyword.value == name), None)


def tests_around(ctx: Context, node: cst.CSTNode, outer: cst.CSTNode) -> Iterable[cst.If]:
    """The conditions between a node and one around it."""
    for ancestor in ctx.ancestors(node):
        if ancestor is outer:
            return
        if isinstance(ancestor, cst.If):
            yield ancestor


def _is_fully_shard(ctx: Context, call: cst.Call) -> bool:
    dotted = ctx.dotted(call.func) or ""
    return dotted.startswith("torch.") and dotted.endswith(".fully_shard")


def _place(ctx: Context, call: cst.Call) -> tuple[str | None, cst.For | None]:
    """The place of what is sharded; of a loop variable, or of a part of it, the place that is looped over."""
    module = wrapped_module(call)
    found = base(module) if module is not None else None
    if module is not None and place(module) is None and found is not None:
        found = f"{found}.{ctx.code(module)}"  # `model.layers[0]`: a part of `model.layers`
    innermost = None
    for node in ctx.ancestors(call):
        if found is not None and isinstance(node, cst.For) and found.split(".")[0] in set(bound(node.target)):
            found = next(looped_over(node.iter), None)
            innermost = innermost or node
    return found, innermost
