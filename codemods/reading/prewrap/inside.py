"""What a function of the program does with the optimizer that it builds, and with the model beside that."""

from __future__ import annotations

import re

import libcst as cst

from codemods.api import Context
from codemods.reading.model_parameters import READERS
from codemods.reading.optimizers import is_optimizer
from codemods.reading.places import base, place, writes

from .entering import entered, object_of
from .keeping import passes_on

_READS = frozenset(
    [
        *READERS,
        "children",
        "modules",
        "named_children",
        "named_modules",
        "requires_grad_",
        "train",
        "eval",
    ]
)
"""Methods of a model after which it shards as before."""
_LOOKS = frozenset({"len", "isinstance", "type", "hasattr", "getattr", "print", "id"})
_DOES = re.compile(r"(?:^|\.)_?(?:train|fit|run|eval|main|loop|step|backward|load|init|wrap|prepare)(?:_\w+)?$")
_DEPTH = 2
"""Into how many functions, one called by the other, is looked."""


def is_returned(ctx: Context, function: cst.FunctionDef, made: cst.BaseExpression, kept: frozenset[str]) -> bool:
    """`return optimizer`, `return model, optimizer`: not an object that has it somewhere."""
    for node in ctx.inside(function.body):
        if isinstance(node, cst.Return) and node.value is not None:
            values = [node.value]
            if isinstance(node.value, (cst.Tuple, cst.List)):
                values = [element.value for element in node.value.elements]
            if any(value is made or place(value) in kept for value in values):
                return True
    return False


def kept_outside(
    where: Context,
    function: cst.FunctionDef,
    made: cst.BaseExpression,
    kept: frozenset[str],
    ctx: Context,
    call: cst.Call,
) -> str | None:
    """Where the caller finds what a function makes and keeps: empty for what it returns, None where nothing stays."""
    stored = {each for each in kept if each.startswith("self.")}
    for node in where.inside(function.body):
        if isinstance(node, (cst.Assign, cst.Return)) and isinstance(node.value, cst.Call):
            if node.value is not made and is_optimizer(where, node.value):
                continue  # found by itself
        if isinstance(node, cst.Assign) and passes_on(where, node.value, kept, made):
            stored |= {found for found in writes(node) if found.startswith("self.")}
        elif isinstance(node, cst.Return) and node.value is not None:
            if passes_on(where, node.value, kept, made):
                return ""
        elif isinstance(node, cst.Yield):
            return ""
    found = object_of(ctx, function, call)
    return f"{found}{min(stored)[4:]}" if stored and found is not None else None


def only_reads(where: Context, function: cst.FunctionDef, places: frozenset[str], depth: int = _DEPTH) -> bool:
    """Whether a function does nothing to the model that would be something else after sharding."""
    for call in where.calls(function):
        if isinstance(call.func, cst.Attribute) and base(call.func.value) in places:
            if call.func.attr.value not in _READS:
                return False
        elif _DOES.search(where.code(call.func)):
            return False
        elif any(place(argument.value) in places for argument in call.args) and not is_optimizer(where, call):
            inner = [found for p in places for found in entered(where, call, p)]
            if inner and (not depth or not all(only_reads(*found, depth - 1) for found in inner)):
                return False
            if not inner and where.code(call.func) not in _LOOKS:
                return False
    return True
