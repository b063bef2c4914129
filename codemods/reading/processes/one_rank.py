"""Code that a single rank comes to: a collective there waits for the others until the timeout."""

from __future__ import annotations

import re

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import call_given, upward
from codemods.reading.code.places import bound
from codemods.reading.code.words import last_name, words
from codemods.reading.parameters.shown import is_only_shown

_OF = r"(?:cur|current|ddp|dist|dp|fsdp|global|local|my|node|proc|process|self|world)_"
_ENVIRON = r"""int\(os\.(?:environ\[|environ\.get\(|getenv\()["'](?:LOCAL_)?RANK["'](?:, ["']?-?\d+["']?)?[\])]\)"""
_RANK = rf"(?:\w+\.)*_?(?:{_OF})?rank|(?:\w+\.)*get_(?:{_OF})?rank\(\)|{_ENVIRON}"
_FIRST = r"is_(?:global_|local_)?(?:main|master)(?:_process|_proc|_rank)?|(?:main|master)_process"
_FIRST += r"|is_global_zero|is_rank_?(?:0|zero)|is_(?:chief|primary)"
_MAIN = rf"(?:\w+\.)*(?:{_FIRST})(?:\([\w.]*\))?"
_DEVICE = r"(?:\w+\.)*(?:gpu|gpu_id|device|device_id|process_index|local_process_index)"
_WITHIN = re.compile(rf"{_DEVICE} (?:==|!=|>) 0|.*[\"']LOCAL_RANK[\"'].*")
"""The number of a device, which is a rank within its node; and what torchrun says of that."""
_ONE = re.compile(
    rf"(?:{_RANK}) (?:== 0|<= 0|in [(\[{{](?:-1, )?0,?[)\]}}])|not (?:{_RANK})|{_MAIN}|{_DEVICE} == 0", re.I
)
_ANY = re.compile(_RANK, re.I)
_OTHERS = re.compile(rf"(?:{_RANK}) (?:!=|>) 0|{_RANK}|not {_MAIN}|{_DEVICE} (?:!=|>) 0", re.I)

_ONLY = re.compile(rf"(?:\w+\.)*(?:get_)?world_size(?:\(\))? (?:==|<=) 1|(?:{_RANK}) == -1")
_SEVERAL = frozenset({"ddp", "dist", "distributed", "fsdp", "initialized", "multi", "parallel"})
"""Words of what says that there are several processes."""

_LOCAL = frozenset({"local"})
_GROUPS = frozenset({"data", "dp", "fsdp", "group", "local", "mesh", "node", "parallel", "replicate", "shard"})
"""Words of the names of ranks that are counted in a group."""

_DEPTH = 3
"""How many calls up are followed."""


def is_on_one_rank(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether the others do not come here: below `if rank == 0:`, behind `if rank != 0: return`, or in the `else`."""
    for inner, outer in upward(ctx, node):
        if isinstance(outer, (cst.FunctionDef, cst.Lambda)):
            return False
        if isinstance(outer, cst.If) and inner is outer.body and _is_one_rank(outer.test, ctx):
            return True
        if isinstance(outer, cst.If) and inner is outer.orelse and _is_others(outer.test, ctx):
            return True
        if isinstance(outer, cst.IndentedBlock) and _others_have_left(ctx, outer, inner):
            return True
    return False


def is_reached_by_one_rank(node: cst.CSTNode, ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether the others do not come to a place, here or at each call of its function."""
    if is_on_one_rank(node, ctx):
        return True
    callers = ctx.callers(node) if depth else ()
    return bool(callers) and all(is_reached_by_one_rank(call, where, depth - 1) for where, call in callers)


def is_in_turn(node: cst.CSTNode, ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether the ranks come here one after the other: below `if turn == rank:` of a loop over turns, here or at a
    call of the function."""
    loops = [outer for outer in ctx.ancestors(node) if isinstance(outer, cst.For)]
    turns = {place for loop in loops for place in bound(loop.target)}
    tests = [outer.test for outer in ctx.ancestors(node) if isinstance(outer, cst.If)]
    if turns and any(_is_turn(test, turns, ctx) for test in tests):
        return True
    callers = ctx.callers(node) if depth else ()
    return any(is_in_turn(call, where, depth - 1) for where, call in callers)


def _is_turn(test: cst.BaseExpression, turns: set[str], ctx: Context) -> bool:
    if not isinstance(test, cst.Comparison) or not isinstance(test.comparisons[0].operator, cst.Equal):
        return False
    sides = [ctx.code(test.left), ctx.code(test.comparisons[0].comparator)]
    return any(side in turns for side in sides) and any(_ANY.fullmatch(side) for side in sides)


def is_read_on_first_rank(value: cst.BaseExpression, ctx: Context, has_group: bool = False) -> bool:
    """Whether all that is done with a value, by itself or in a dict, is done on the first of all ranks.

    Where the model has a group of its own (`has_group`), the rank that is asked for has to be seen not to be one of it.
    What only shows how many there are tells the same of an empty one.
    """
    holder = _holder(value, ctx)
    assignment = ctx.parent(holder)
    if is_on_one_rank(holder, ctx):
        return not _is_asked_in(holder, _GROUPS if has_group else _LOCAL, ctx)
    if not isinstance(assignment, cst.Assign) or len(assignment.targets) != 1:
        return _is_counted(value, ctx)
    uses = _uses_of(assignment, ctx)
    others = [use for use in uses if not isinstance(ctx.parent(use), cst.Del)]
    return bool(uses) and all(is_read_on_first_rank(use, ctx, has_group) for use in others)


def is_read_on_each_node(value: cst.BaseExpression, ctx: Context) -> bool:
    """Whether something is seen to be done with a value on the first rank of a node, `if local_rank == 0:`."""
    holder = _holder(value, ctx)
    if is_on_one_rank(holder, ctx):
        return _is_asked_in(holder, _LOCAL, ctx)
    made = ctx.parent(holder)
    uses = _uses_of(made, ctx) if isinstance(made, cst.Assign) and len(made.targets) == 1 else []
    return any(is_read_on_each_node(use, ctx) for use in uses)


def _uses_of(assignment: cst.Assign, ctx: Context) -> list[cst.Name]:
    """The uses of what a value is put into; of a dict that is filled by and by, those that do not fill it."""
    target = assignment.targets[0].target
    if isinstance(target, cst.Subscript) and isinstance(target.value, cst.Name):
        made = ctx.bound(target.value) or ()
        holders = [ctx.parent(value) for where, value in made if where.path == ctx.path and isinstance(value, cst.Dict)]
        uses = [use for holder in holders if isinstance(holder, cst.Assign) for use in ctx.uses(holder)]
        return [use for use in uses if not _is_filled(use, ctx)] if len(holders) == len(made) else []
    return list(ctx.uses(assignment)) if isinstance(target, cst.Name) else []


def _is_filled(use: cst.Name, ctx: Context) -> bool:
    """`data["model"] = …`, `data.update(…)`."""
    holder = ctx.parent(use)
    if isinstance(holder, cst.Attribute):
        return holder.attr.value == "update"
    return isinstance(holder, cst.Subscript) and isinstance(ctx.parent(holder), cst.AssignTarget)


def _is_counted(value: cst.BaseExpression, ctx: Context) -> bool:
    """`print(f"{len(state)} states")`."""
    call = call_given(value, ctx)
    return call is not None and last_name(call.func) == "len" and is_only_shown(call, ctx)


def _holder(value: cst.CSTNode, ctx: Context) -> cst.CSTNode:
    """The dict that a value is an item of, or the value."""
    outer = ctx.parent(value)
    while isinstance(outer, (cst.DictElement, cst.Dict)):
        value, outer = outer, ctx.parent(outer)
    return value


def _is_asked_in(node: cst.CSTNode, groups: frozenset[str], ctx: Context) -> bool:
    """Whether a rank that is asked for can be that within a node or a group: the first of each comes there."""
    tests = [outer.test for outer in ctx.ancestors(node) if isinstance(outer, cst.If)]
    names = [name for test in tests for name in ctx.inside(test) if isinstance(name, cst.Name)]
    meant = [value for name in names for where, value in ctx.bound(name) or () if where.path == ctx.path]
    names += [name for value in meant for name in ctx.inside(value) if isinstance(name, cst.Name)]
    if groups is _LOCAL:
        compared = (each for test in tests for each in ctx.inside(test) if isinstance(each, cst.Comparison))
        return any(words(name.value) & groups for name in names) or any(
            _WITHIN.fullmatch(ctx.code(each)) is not None for each in compared
        )
    ranks = [name for name in names if "rank" in words(name.value)]
    made = [origin.node for rank in ranks for origin in ctx.origins(rank)]
    of_group = any(isinstance(call, cst.Call) and call.args and last_name(call.func) == "get_rank" for call in made)
    return not ranks or of_group or any(words(name.value) & groups for name in names)


def _bare(test: cst.BaseExpression, ctx: Context) -> str:
    """`rank == 0`, in brackets too."""
    return ctx.text[slice(*ctx.bare_span(test))]


def _is_one_rank(test: cst.BaseExpression, ctx: Context, depth: int = _DEPTH) -> bool:
    """Whether a condition holds on the first of several ranks only: `rank == 0 and last`, also by another name."""
    if isinstance(test, cst.BooleanOperation):
        is_met = _is_one_rank(test.left, ctx, depth), _is_one_rank(test.right, ctx, depth)
        if isinstance(test.operator, cst.And):
            return any(is_met) and "world" not in ctx.code(test)
        return (is_met[0] and _is_alone(test.right, ctx)) or (is_met[1] and _is_alone(test.left, ctx))
    if _ONE.fullmatch(_bare(test, ctx)) is not None:
        return True
    if isinstance(test, cst.Call) and not test.args and depth:
        asked = ctx.runs(test)
        return len(asked) == 1 and _gives_one_rank(*asked[0], depth)
    named = (ctx.bound(test) or ()) if isinstance(test, cst.Name) and depth else ()
    return len(named) == 1 and all(
        where.path == ctx.path and _is_one_rank(value, ctx, depth - 1) for where, value in named
    )


def _gives_one_rank(ctx: Context, function: cst.FunctionDef, depth: int) -> bool:
    """`return rank == 0`, alone or for several processes: `if self.use_fsdp: return rank == 0`, and True else."""
    given = [node for node in ctx.inside(function.body) if isinstance(node, cst.Return) and node.value is not None]
    first = [each for each in given if each.value is not None and _is_one_rank(each.value, ctx, depth - 1)]
    if len(first) != 1 or any(ctx.code(each) != "return True" for each in given if each not in first):
        return False
    around = [outer for outer in ctx.ancestors(first[0]) if isinstance(outer, cst.If)]
    if len(given) == 1:
        return not around
    return len(given) == 2 and len(around) == 1 and bool(words(last_name(around[0].test)) & _SEVERAL)


def _is_alone(test: cst.BaseExpression, ctx: Context) -> bool:
    """Whether there is one process, which FSDP has not to do with: `not distributed`, `world_size == 1`."""
    if not isinstance(test, cst.UnaryOperation) or not isinstance(test.operator, cst.Not):
        return _ONLY.fullmatch(_bare(test, ctx)) is not None
    asked = test.expression.func if isinstance(test.expression, cst.Call) else test.expression
    return bool(words(last_name(asked)) & _SEVERAL)


def _others_have_left(ctx: Context, block: cst.CSTNode, inner: cst.CSTNode) -> bool:
    """Whether `if rank != 0: return` stands above."""
    for statement in getattr(block, "body", ()):
        if statement is inner:
            return False
        if isinstance(statement, cst.If) and statement.orelse is None and _is_others(statement.test, ctx):
            last = statement.body.body[-1]
            if isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Return):
                return True
    return False


def _is_others(test: cst.BaseExpression, ctx: Context) -> bool:
    """`rank != 0`, `not first`."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        if isinstance(test.expression, cst.Name) and _is_one_rank(test.expression, ctx):
            return True
    return _OTHERS.fullmatch(_bare(test, ctx)) is not None
