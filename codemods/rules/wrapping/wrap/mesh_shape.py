"""Whether a strategy is chosen by the number of a mesh's dimensions."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import libcst as cst

from codemods.api import Context
from codemods.reading.choices import Option
from codemods.tables.strategies import STRATEGIES

from .hybrid_only import HYBRID
from .strategy_names import names_given


def fits_shape(option: Option, mesh: Collection[cst.CSTNode]) -> bool:
    """Whether a strategy is chosen only where the mesh is what it needs: a hybrid one raises for one of one dimension,
    and any other is chosen where `mesh.ndim` is one.

    `mesh` are the places where the mesh is made.
    """
    names = names_given(option.file, option.node) or frozenset()
    if names and names <= HYBRID:
        return True
    if names & HYBRID or _own_mesh_of_one(names):
        return False
    inner = cast(cst.CSTNode, option.node)
    for outer in option.file.ancestors(option.node):
        if isinstance(outer, cst.If):
            asked = _dimensions_asked(option.file, outer.test, mesh)
            if asked and (asked == 1) == (inner is outer.body):
                return True
        inner = outer
    return False


def _own_mesh_of_one(names: Collection[str]) -> bool:
    return any(STRATEGIES[name].mesh for name in names)


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
