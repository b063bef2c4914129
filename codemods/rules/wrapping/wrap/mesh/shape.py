"""Whether the mesh that a call is given is what each strategy needs that can be chosen with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import libcst as cst

from codemods.api import Context, Origin
from codemods.reading.code.enclosing import enclosing, upward
from codemods.reading.values.choices import Option
from codemods.tables.strategies import STRATEGIES

from ..draft import Draft
from ..strategy.names import Strategy, names_given
from .hybrid_only import HYBRID, is_beside_hybrids
from .ranks import Ranks


def is_for_each(ranks: Ranks, strategy: Strategy, draft: Draft) -> bool:
    """Whether the mesh is the one of each strategy, where FSDP1 took it: nothing but when parameters are freed is left
    to choose.
    """
    if strategy.names <= HYBRID or is_by_shape(ranks, strategy) or is_of_hybrids(ranks, strategy, draft):
        return True
    return is_made_beside_each(ranks, strategy, draft)


def is_made_beside_each(ranks: Ranks, strategy: Strategy, draft: Draft) -> bool:
    """Whether each branch that chooses a strategy makes the mesh of as many dimensions as it needs."""
    ctx, shapes = draft.file, dict[cst.CSTNode | None, set[int]]()
    if ranks.instead is not None or not strategy.options:
        return False
    for origin in ranks.origins:
        if origin.node is None or origin.file.path != ctx.path or ctx.scope(origin.node) is not ctx.scope(draft.call):
            return False
        shapes.setdefault(enclosing(ctx, origin.node, cst.IndentedBlock), set()).add(len(dimensions(origin)))
    chosen: set[cst.CSTNode | None] = set()
    for option in strategy.options:
        names = names_given(option.file, option.node) or frozenset()
        block = enclosing(ctx, option.node, cst.IndentedBlock) if option.file.path == ctx.path else None
        needed = {2} if names <= HYBRID else {1}
        if not names or block is None or shapes.get(block) != needed or any(STRATEGIES[n].mesh for n in names - HYBRID):
            return False
        chosen.add(block)
    return chosen == shapes.keys() and chosen.isdisjoint(ctx.ancestors(draft.call))


def is_by_shape(ranks: Ranks, strategy: Strategy) -> bool:
    """Whether the shape of the mesh decides about the strategy."""
    made = {origin.node for origin in ranks.origins if origin.node is not None}
    return bool(strategy.options) and all(_fits_shape(option, made) for option in strategy.options)


def is_of_hybrids(ranks: Ranks, strategy: Strategy, draft: Draft) -> bool:
    """Whether it is made where a hybrid strategy is chosen, and there is none beside the others."""
    if not strategy.meshes <= HYBRID or ranks.instead is not None or strategy.value is None:
        return False
    return is_beside_hybrids(ranks.origins, strategy.value, draft)


def is_of_all(ranks: Ranks) -> bool:
    """Whether it is made here, of one dimension: over all ranks."""
    is_given = ranks.argument == "device_mesh" and not ranks.may_be_none and ranks.instead is None
    made = [origin for origin in ranks.origins if isinstance(origin.node, cst.Call)]
    is_made = len(made) == len(ranks.origins) and all(len(dimensions(origin)) == 1 for origin in made)
    return is_given and bool(made) and is_made


def dimensions(origin: Origin) -> tuple[str, ...]:
    """The names of a mesh's dimensions, empty ones where it has none; nothing when the mesh is not seen."""
    node = origin.node
    if isinstance(node, cst.Subscript):
        indices = [element.slice.value for element in node.slice if isinstance(element.slice, cst.Index)]
        if len(indices) == 1 and isinstance(indices[0], cst.Tuple):
            indices = [element.value for element in indices[0].elements]
        return _literals(indices)
    if not isinstance(node, cst.Call) or not (origin.file.dotted(node.func) or "").endswith(".init_device_mesh"):
        return ()
    named = {a.keyword.value: a.value for a in node.args if a.keyword is not None}
    names = named.get("mesh_dim_names")
    if isinstance(names, (cst.Tuple, cst.List)):
        return _literals([element.value for element in names.elements])
    return ("",) * len(_sizes(node))


def ranks_of_shards(origin: Origin) -> int | None:
    """How many ranks the last dimension of a mesh has that is made here; None where that is not seen."""
    node = origin.node
    sizes = _sizes(node) if isinstance(node, cst.Call) and dimensions(origin) else ()
    last = sizes[-1].value if sizes else None
    return last.evaluated_value if isinstance(last, cst.Integer) else None


def _sizes(call: cst.Call) -> Sequence[cst.BaseElement]:
    """Those of the dimensions that `init_device_mesh` is given one by one."""
    shape = next((a.value for a in call.args if a.keyword is not None and a.keyword.value == "mesh_shape"), None)
    if shape is None and len(call.args) > 1 and call.args[1].keyword is None:
        shape = call.args[1].value
    return shape.elements if isinstance(shape, (cst.Tuple, cst.List)) else ()


def _literals(nodes: list[cst.BaseExpression]) -> tuple[str, ...]:
    if not all(isinstance(node, cst.SimpleString) for node in nodes):
        return ()
    return tuple(str(node.raw_value) for node in nodes if isinstance(node, cst.SimpleString))


def _fits_shape(option: Option, mesh: Collection[cst.CSTNode]) -> bool:
    """Whether a strategy is chosen only where the mesh is what it needs: a hybrid one raises for one of one dimension,
    and any other is chosen where `mesh.ndim` is one.

    `mesh` are the places where the mesh is made.
    """
    names = names_given(option.file, option.node) or frozenset()
    if names and names <= HYBRID:
        return True
    if names & HYBRID or any(STRATEGIES[name].mesh for name in names):
        return False
    for inner, outer in upward(option.file, option.node):
        if isinstance(outer, cst.If):
            asked = _dimensions_asked(option.file, outer.test, mesh)
            if asked and (asked == 1) == (inner is outer.body):
                return True
    return False


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
