"""Which models a program shards with `fully_shard`, each with its place and the calls for its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from codemods.api import Context, Edit, Fix, Level, left
from codemods.reading.code.once import once
from codemods.reading.code.places import base, bound, place
from codemods.reading.edits.layout import lines_below
from codemods.reading.wraps.wrapped import is_on_another_way, looped_over, wrapped_module, wrapped_place

WORDS = ("fully_shard",)
IN_ONE_LOOP = "the model is sharded in the same loop as its units"


def is_fully_shard(ctx: Context, callee: cst.BaseExpression) -> bool:
    """Whether an expression is torch's `fully_shard`, from whichever of its modules."""
    dotted = ctx.dotted(callee) or ""
    return dotted.startswith("torch.") and dotted.endswith(".fully_shard")


@once
def fully_shard_calls(ctx: Context) -> Sequence[tuple[cst.Call, str]]:
    """`fully_shard(model.encoder)` with `model.encoder`; for the variable of a loop, with what is looped over."""
    found = [(call, wrapped_place(ctx, call)) for call in ctx.nodes(cst.Call) if is_fully_shard(ctx, call.func)]
    return [(call, model) for call, model in found if model is not None]


@once
def shards_itself(ctx: Context) -> bool:
    """Whether any file of the program has FSDP2's own calls."""
    return any(fully_shard_calls(file) for file in ctx.files("fully_shard"))


def known_as(ctx: Context, call: cst.Call, where: str) -> str:
    """The name that the program goes on with: `model` after `model = fully_shard(net)`."""
    holder = ctx.parent(call)
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1:
        return place(holder.targets[0].target) or where
    return where


def sharded_above(ctx: Context, node: cst.Call, model: str) -> bool:
    """Whether the model of this place is sharded above `node`, in the same function and for sure on the same way."""
    return any(
        model in {where, known_as(ctx, call, where)} and comes_before(ctx, call, node)
        for call, where in fully_shard_calls(ctx)
    )


def comes_before(ctx: Context, call: cst.Call, node: cst.Call) -> bool:
    """Whether a call is made before another of its function, for sure on the same way."""
    if ctx.scope(call) is not ctx.scope(node) or ctx.span(call)[0] >= ctx.span(node)[0]:
        return False
    return not is_on_another_way(ctx, call, node) and not ctx.excludes(call, node)


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
    def is_named(self) -> bool:
        """Whether the model has a name before it is sharded."""
        return place(self.root.args[0].value) is not None

    @property
    def is_bound(self) -> bool:
        """Whether what `fully_shard` returns gets a name."""
        return isinstance(self.file.parent(self.root), cst.Assign)

    @property
    def statement(self) -> cst.SimpleStatementLine | None:
        """The statement of the root's call, where that is all of it: called, bound to a name, or returned."""
        small = self.file.parent(self.root)
        line = self.file.parent(small) if isinstance(small, (cst.Expr, cst.Assign, cst.Return)) else None
        return line if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None

    @property
    def first(self) -> cst.CSTNode | None:
        """The statement with which the sharding begins, in the innermost block that holds all of it."""
        calls = [*(unit.call for unit in self.units), self.root]
        for block in self.file.ancestors(self.root):
            if isinstance(block, (cst.IndentedBlock, cst.Module)):
                inside = [set(self.file.inside(statement)) for statement in block.body]
                places = [next((n for n, nodes in enumerate(inside) if call in nodes), None) for call in calls]
                known = [place for place in places if place is not None]
                if len(known) == len(calls):
                    return block.body[min(known)]
        return None

    def below(self, lines: Sequence[str]) -> list[Edit]:
        """Edits that put lines below the statement of the root; what it returns is returned behind them.

        Only where there is a `statement`.
        """
        file, line = self.file, self.statement
        assert line is not None
        small, edits = line.body[0], []
        if isinstance(small, cst.Return):
            edits.append(Edit(file.span(small)[0], file.span(self.root)[0], ""))
            lines = [*lines, f"return {self.model}"]
        return [*edits, lines_below(file, line, lines)]

    @property
    def known_as(self) -> str:
        """The name that the program goes on with."""
        return known_as(self.file, self.root, self.model)


def shardings(ctx: Context) -> list[Sharding]:
    """The models that a file shards, in the order of the text."""
    calls = [(call, *_place(ctx, call)) for call in ctx.nodes(cst.Call) if is_fully_shard(ctx, call.func)]
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
                if _is_part(where, loop, model) and comes_before(ctx, call, root)
            ),
            any(where == model and call is not root and ctx.scope(call) is ctx.scope(root) for call, where in roots),
        )
        for root, model in roots
    ]


def _is_part(where: str | None, loop: cst.For | None, model: str) -> bool:
    """Whether a call is for a part of a model. What is not seen is sharded for something: the next model below."""
    return where is None or where.startswith(f"{model}.") or (where == model and loop is not None)


def rootless(code: str, ctx: Context, why: str, hint: str) -> Iterator[Fix]:
    """What is left to a person of the calls to which no call for the whole model belongs."""
    return (cannot(code, ctx, call, why, hint) for call in loops_without_root(ctx))


def loops_without_root(ctx: Context) -> list[cst.Call]:
    """Calls for a part of something, in a loop most often, to which no call for the whole model belongs."""
    found = shardings(ctx)
    known = {unit.call for sharding in found for unit in sharding.units} | {sharding.root for sharding in found}
    return [call for call in ctx.nodes(cst.Call) if is_fully_shard(ctx, call.func) and call not in known]


_DEPTH = 3


def helpers(sharding: Sharding) -> list[str]:
    """The functions that shard something else on the way to a model, or around its sharding: parts of it, mostly."""
    ctx, scope = sharding.file, sharding.file.scope(sharding.root)
    start = ctx.span(sharding.root)[0]
    above = [call for call in ctx.calls(scope) if ctx.span(call)[0] < start]
    found = [name for call in above for name in _sharding_functions(ctx, call, _DEPTH)]
    for where, call in ctx.callers(sharding.root):
        if any(is_fully_shard(where, other.func) for other in where.calls(where.scope(call))):
            found.append(getattr(getattr(scope, "name", None), "value", "this function"))
    return found


def _sharding_functions(ctx: Context, call: cst.Call, depth: int) -> Iterable[str]:
    for where, function in ctx.runs(call):
        inner = [each for each in where.inside(function.body) if isinstance(each, cst.Call)]
        if any(is_fully_shard(where, each.func) for each in inner):
            yield function.name.value
        elif depth:
            yield from (name for each in inner for name in _sharding_functions(where, each, depth - 1))


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


def _place(ctx: Context, call: cst.Call) -> tuple[str | None, cst.For | None]:
    """The place of what is sharded; of a loop variable, or of a part of it, the place that is looped over.

    `model` of `model = fully_shard(Net())`, and the text of an expression that has no name at all. None in a loop over
    something that has none.
    """
    module = wrapped_module(call)
    found = base(module) if module is not None else None
    if module is not None and place(module) is None:
        code = ctx.code(module)
        # `model.layers[0]`: a part of `model.layers`
        found = (
            f"{found}.{code}" if found is not None and not isinstance(module, cst.Call) else known_as(ctx, call, code)
        )
    innermost = None
    for node in ctx.ancestors(call):
        if found is not None and isinstance(node, cst.For) and found.split(".")[0] in set(bound(node.target)):
            found = next(looped_over(node.iter), None)
            innermost = innermost or node
    return found, innermost


def cannot(code: str, ctx: Context, call: cst.Call, why: str, hint: str) -> Fix:
    """What is left to a person of an upgrade."""
    return left(code, Level.MANUAL, ctx, call, f"not upgraded: {why}", hint)
