"""What is DDP's by its own name: a branch, a function, a class."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.words import last_name, words


def is_on_ddp_way(node: cst.CSTNode, ctx: Context) -> bool:
    """`model.module` under `if state.is_ddp:`, by the flag's own name: a DDP model can come there, or any other."""
    inner = node
    for outer in ctx.ancestors(node):
        if isinstance(outer, (cst.If, cst.IfExp)) and outer.body is inner and _says_ddp(outer.test):
            return True
        inner = outer
    return False


def is_in_ddp(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether a place is in a function or class that is called so: `class DistributedDataParallel`, `test_ddp`."""
    around = (node, *ctx.ancestors(node))
    names = (words(outer.name.value) for outer in around if isinstance(outer, (cst.FunctionDef, cst.ClassDef)))
    return any(name >= _DDP or ("ddp" in name and "fsdp" not in name) for name in names)


_DDP = frozenset({"distributed", "data", "parallel"})


def _says_ddp(test: cst.BaseExpression) -> bool:
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return _says_ddp(test.left) or _says_ddp(test.right)
    return isinstance(test, (cst.Name, cst.Attribute)) and "ddp" in words(last_name(test))
