"""The way of another engine, which the program asks for by its name, and another wrapper's model."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import upward
from codemods.reading.code.shapes import is_attribute
from codemods.reading.code.words import words
from codemods.reading.wrappers.beside_fsdp2 import chain


def is_another_engines(node: cst.CSTNode, ctx: Context) -> bool:
    """Whether it stands under `if backend == "ddp":`, in a chain that asks the same for "fsdp" in another branch."""
    for inner, outer in upward(ctx, node):
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef)):
            return False
        if isinstance(outer, cst.If) and inner is outer.body:
            asked, name = _asked(outer, ctx)
            beside = [_asked(branch, ctx) for branch in chain(outer, ctx)]
            if name and "fsdp" not in name and any(other == asked and "fsdp" in words_ for other, words_ in beside):
                return True
    return False


def is_xlas(model: cst.BaseExpression, ctx: Context) -> bool:
    """Whether the function asks it for `get_shard_metadata()`, which XLA's wrapper has and torch's never had."""
    asked = (call.func.value for call in ctx.calls(ctx.scope(model)) if is_attribute(call.func, "get_shard_metadata"))
    return any(ctx.code(each) == ctx.code(model) for each in asked)


def _asked(branch: cst.If, ctx: Context) -> tuple[str, frozenset[str]]:
    """What is compared with a word, and the parts of the word."""
    test = branch.test
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return "", frozenset()
    target = test.comparisons[0]
    if not isinstance(target.operator, cst.Equal) or not isinstance(target.comparator, cst.SimpleString):
        return "", frozenset()
    return ctx.code(test.left), words(str(target.comparator.evaluated_value))
