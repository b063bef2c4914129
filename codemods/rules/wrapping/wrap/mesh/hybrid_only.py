"""Whether a mesh is given to the hybrid strategies alone, so that any other strategy comes without one.

if cfg.strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2):
    mesh = init_device_mesh("cuda", (nodes, per_node))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.code.enclosing import contains, enclosing, upward
from codemods.reading.edits.negation import conjuncts
from codemods.tables.strategies import STRATEGIES

from ..draft import Draft

HYBRID = frozenset({"HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"})


def is_for_hybrids(made: list[Origin], value: cst.BaseExpression, draft: Draft) -> bool:
    """`made` is where the mesh is made, and `value` the strategy, or the name of one."""
    return bool(made) and all(
        any(_is_hybrid_there(step, value, draft) for step in _steps(each, draft)) for each in made
    )


def is_beside_hybrids(made: Sequence[Origin], value: cst.BaseExpression, draft: Draft) -> bool:
    """Whether one branch makes the mesh and chooses a hybrid strategy, and what is above or in the others neither."""
    seen = [origin for origin in made if not origin.is_none]
    nones = [origin.node for origin in made if origin.is_none and origin.node is not None]
    is_beside = isinstance(value, cst.Name) and all(_is_made_beside(each, nones, value, draft) for each in seen)
    return bool(seen) and is_beside


def _is_made_beside(origin: Origin, nones: list[cst.CSTNode], value: cst.BaseExpression, draft: Draft) -> bool:
    ctx = draft.file
    if origin.node is None or origin.file.path != ctx.path or ctx.scope(origin.node) is not ctx.scope(draft.call):
        return False
    branch = enclosing(ctx, origin.node, cst.If)
    if branch is None or not isinstance(value, cst.Name) or not _is_in(branch.body, origin.node, draft):
        return False
    if not _is_chosen_by(branch, value, draft) or any(_is_in(branch.body, none, draft) for none in nones):
        return False
    return not any(
        _strategies(where, node) & HYBRID
        for where, node in ctx.bound(value) or ()
        if not _is_in(branch.body, node, draft)
    )


def _steps(origin: Origin, draft: Draft) -> Iterator[cst.CSTNode]:
    """Where a mesh is made: the expression itself, or the one call of the function that makes it."""
    if origin.node is None:
        return
    if origin.file.path == draft.file.path:
        yield origin.node
    callers = [call for where, call in origin.file.callers(origin.node) if where.path == draft.file.path]
    if len(callers) == 1:
        yield callers[0]


def _is_hybrid_there(node: cst.CSTNode, value: cst.BaseExpression, draft: Draft) -> bool:
    """Whether code runs only where the strategy is a hybrid one."""
    ctx = draft.file
    if ctx.scope(node) is not ctx.scope(draft.call) or _is_set(value, draft):
        return False
    for inner, outer in upward(ctx, node):
        if isinstance(outer, cst.If) and inner is outer.body:
            if any(_asks_for_hybrid(part, value, draft) for part in conjuncts(outer.test)):
                return True
            if isinstance(value, cst.Name) and _is_chosen_by(outer, value, draft):
                return True
    return False


def _is_chosen_by(branch: cst.If, value: cst.Name, draft: Draft) -> bool:
    """Whether the same branch chooses the strategy: a hybrid one, where another one is chosen in the others, or was
    above.
    """
    ctx, bound = draft.file, draft.file.bound(value) or ()
    there = [node for where, node in bound if where is ctx and _is_in(branch.body, node, draft)]
    others = [node for where, node in bound if where is ctx and node not in there]
    if not there or len(there) + len(others) < len(bound):
        return False
    if not all(ctx.excludes(node, there[0]) or _is_above(node, branch, ctx) for node in others):
        return False
    return all(_strategies(ctx, node) <= HYBRID for node in there)


def _is_above(node: cst.CSTNode, branch: cst.If, ctx: Context) -> bool:
    """Whether it is assigned before the `if`, whether that branch is taken or not."""
    line = enclosing(ctx, node, cst.SimpleStatementLine)
    block = ctx.parent(line) if line is not None else None
    return block is not None and contains(ctx, block, branch) and ctx.span(node)[1] <= ctx.span(branch)[0]


def _is_in(block: cst.CSTNode | None, node: cst.CSTNode, draft: Draft) -> bool:
    return any(outer is block for outer in draft.file.ancestors(node))


def _is_set(value: cst.BaseExpression, draft: Draft) -> bool:
    """Whether the function sets the attribute that is asked, so that it may be another one in between."""
    if not isinstance(value, cst.Attribute):
        return False
    around = draft.file.inside(draft.file.scope(draft.call))
    targets = [each.target for node in around if isinstance(node, cst.Assign) for each in node.targets]
    return any(isinstance(target, cst.Attribute) and target.attr.value == value.attr.value for target in targets)


def _asks_for_hybrid(test: cst.BaseExpression, value: cst.BaseExpression, draft: Draft) -> bool:
    """`strategy == ShardingStrategy.HYBRID_SHARD`, `strategy in (…)`, of strategies or of their names."""
    ctx = draft.file
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1 or ctx.code(test.left) != ctx.code(value):
        return False
    operator, wanted = test.comparisons[0].operator, test.comparisons[0].comparator
    elements = [wanted]
    if isinstance(operator, cst.In) and isinstance(wanted, (cst.Tuple, cst.List, cst.Set)):
        elements = [element.value for element in wanted.elements]
    elif not isinstance(operator, (cst.Equal, cst.Is)):
        return False
    return ctx.same_meaning(test.left, draft.call) and all(_strategies(ctx, each) <= HYBRID for each in elements)


def _strategies(ctx: Context, node: cst.BaseExpression) -> frozenset[str]:
    """The strategies that an expression can give, by value or by name; all of them where that is not seen."""
    if isinstance(node, cst.SimpleString):
        return frozenset({str(node.evaluated_value)})
    if isinstance(node, cst.IfExp):
        return _strategies(ctx, node.body) | _strategies(ctx, node.orelse)
    made = ctx.fsdp1(node) or ""
    name = made.removeprefix("ShardingStrategy.")
    return frozenset({name}) if name != made and name in STRATEGIES else frozenset(STRATEGIES)
