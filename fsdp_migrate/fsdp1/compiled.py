"""Which files give `torch.compile` a model or a part of one: the names of its parameters hold `_orig_mod.` then."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from codemods.api import Context, ModelKind

from ..pyanalysis.program import Program
from ..pyanalysis.tree import Tree
from .model_kinds import kind_of

_OPTIONS = frozenset({"fullgraph", "dynamic", "backend", "mode", "options", "disable"})


def compiling(program: Program, file: Callable[[Tree], Context]) -> list[Context]:
    """The files with such a call."""
    trees = (tree for path, text in program.texts.items() if "compile(" in text and (tree := program.tree(path)))
    files = [file(tree) for tree in trees]
    return [f for f in files if any(_is_of_module(program, f, call) for call in f.nodes(cst.Call))]


def _is_of_module(program: Program, ctx: Context, call: cst.Call) -> bool:
    """`torch.compile(model)`, or of what is not seen to be a function."""
    if ctx.dotted(call.func) != "torch.compile":
        return False
    given = (each.value for each in call.args if each.keyword is None or each.keyword.value not in _OPTIONS)
    value = next(given, None)
    if value is None:
        return False  # a decorator with options: `@torch.compile(fullgraph=True)`
    made = ctx.origins(value)
    if any(isinstance(origin.node, cst.Call) for origin in made):
        return True
    is_method = isinstance(value, cst.Attribute) and any(program.defining(value.attr.value))
    return not is_method and any(kind_of(origin) is ModelKind.UNKNOWN for origin in made)
