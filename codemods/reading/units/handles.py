"""FSDP1's handles, one for each flat parameter: where a program asks for those of a model, and what starts them."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context
from codemods.reading.code.shapes import alone
from codemods.reading.edits.negation import conjuncts

HANDLES = ("_handle", "_handles")
"""What a unit of FSDP1's has them in."""


def is_reshard(function: cst.BaseExpression, ctx: Context) -> bool:
    """Whether it is FSDP1's own `_reshard`, which takes a unit and its handles."""
    return (ctx.fsdp1(function) or "").rpartition(".")[2] == "_reshard"


def model_of_handles(node: cst.BaseExpression, ctx: Context) -> cst.BaseExpression | None:
    """The model of `model._all_handles` and `_get_fsdp_handles(model)`."""
    if isinstance(node, cst.Attribute) and node.attr.value == "_all_handles":
        return node.value
    if not isinstance(node, cst.Call) or len(node.args) != 1 or node.args[0].star:
        return None
    return node.args[0].value if (ctx.dotted(node.func) or "").endswith("._get_fsdp_handles") else None


def started(node: cst.CSTNode, ctx: Context) -> Iterator[cst.CSTNode]:
    """What starts a model by hand, and asks whether it is the root, in the block of a loop over its handles."""
    block = ctx.parent(node)
    for line in block.body if isinstance(block, cst.IndentedBlock) else ():
        small = alone(line)
        if isinstance(small, cst.Assert):
            asked = conjuncts(small.test)
            if all(isinstance(each, cst.Attribute) and each.attr.value == "_is_root" for each in asked):
                yield line
        elif isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
            if (ctx.dotted(small.value.func) or "").endswith("._lazy_init"):
                yield line
