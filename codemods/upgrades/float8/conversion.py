"""The lines that convert a model's linear layers, where the hardware can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from codemods.api import Context
from codemods.reading.code.enclosing import is_self
from codemods.reading.own_fsdp2.shardings import Sharding

from .recipes import TENSORWISE

CONVERT = "convert_to_float8_training"

_CAPABILITY = {TENSORWISE: "8.9"}
_ROWWISE_CAPABILITY = "9.0"


def conversion(sharding: Sharding, library: str, heads: Sequence[str] | None, recipe: str) -> list[str]:
    ctx = sharding.file
    config = f"{library}.Float8LinearConfig"
    if recipe == TENSORWISE:
        config += "(enable_fsdp_float8_all_gather=True)"
    else:
        config += f'.from_recipe_name("{recipe}")'
    capability = _CAPABILITY.get(recipe, _ROWWISE_CAPABILITY)
    one, two = ctx.indent, ctx.indent * 2
    return [
        f"if torch.cuda.is_available() and torch.cuda.get_device_capability() >= ({capability.replace('.', ', ')}):",
        f"{one}{library}.{CONVERT}(",
        f"{two}{sharding.model},",
        f"{two}config={config},",
        *_filter(sharding, heads),
        f"{one})",
        "else:",
        f'{one}warnings.warn("no float8: it needs a GPU of compute capability {capability}")',
    ]


def _filter(sharding: Sharding, heads: Sequence[str] | None) -> list[str]:
    ctx = sharding.file
    if heads is None:
        stays = 'not name.endswith("head")'
    elif len(heads) == 1:
        stays = f'name != "{heads[0]}"'
    else:
        stays = f"name not in ({', '.join(f'{head!r}'.replace(chr(39), chr(34)) for head in heads)})"
    test = f"{stays} and not any(size % 16 for size in linear.weight.shape)"
    start = f"{ctx.indent * 2}module_filter_fn=lambda linear, name: "
    column = ctx.position(sharding.first or sharding.root)[1] - 1
    if column + len(start) + len(test) + 1 <= ctx.width:
        return [f"{start}{test},"]
    return [f"{start}(", f"{ctx.indent * 3}{test}", f"{ctx.indent * 2}),"]


# Which layer of a model makes its output, as its class shows it.

_LINEAR = frozenset({"torch.nn.Linear", "torch.nn.modules.linear.Linear"})


def output_heads(ctx: Context, model: cst.BaseExpression) -> list[str] | None:
    """Of each class that a model can be of: the linear layer of its own that its forward calls last.

    None where a class is not seen, or has no such layer.
    """
    found: dict[str, None] = {}
    for origin in ctx.origins(model):
        if not isinstance(origin.node, cst.Call):
            return None
        classes = origin.file.origins(origin.node.func)
        for made in classes:
            head = _of_class(made.file, made.node) if isinstance(made.node, cst.ClassDef) else None
            if head is None:
                return None
            found[head] = None
    return list(found) or None


def _of_class(ctx: Context, owner: cst.ClassDef) -> str | None:
    methods = {node.name.value: node for node in owner.body.body if isinstance(node, cst.FunctionDef)}
    if "forward" not in methods or "__init__" not in methods:
        return None
    linear = set(_linear(ctx, methods["__init__"]))
    # A call ends behind those in its arguments, and is made behind them.
    calls = sorted(ctx.calls(methods["forward"]), key=lambda call: ctx.span(call)[1])
    called = [
        call.func.attr.value for call in calls if isinstance(call.func, cst.Attribute) and is_self(call.func.value, ctx)
    ]
    return next((name for name in reversed(called) if name in linear), None)


def _linear(ctx: Context, init: cst.FunctionDef) -> Iterator[str]:
    for node in ctx.inside(init):
        if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call):
            if ctx.dotted(node.value.func) in _LINEAR:
                for target in node.targets:
                    if isinstance(target.target, cst.Attribute) and is_self(target.target.value, ctx):
                        yield target.target.attr.value
