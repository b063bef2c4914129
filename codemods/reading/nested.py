"""A constructor call around another one: `wrap(wrap(module))`."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.manual import arguments, is_constructor
from codemods.reading.wrapped import wrapped_module


def same_unit_inside(ctx: Context, call: cst.Call) -> cst.Call | None:
    """The constructor call that a call wraps directly, where both have the same arguments."""
    inner = wrapped_module(call) if is_constructor(ctx, call) else None
    if not isinstance(inner, cst.Call) or not is_constructor(ctx, inner):
        return None
    return inner if _settings(ctx, call) == _settings(ctx, inner) else None


def _settings(ctx: Context, call: cst.Call) -> set[tuple[str, str]]:
    """The arguments but the module, each by its keyword, or its stars and place, and its text."""
    module = wrapped_module(call)
    given = [(i, a) for i, a in enumerate(arguments(ctx, call)) if a.value is not module]
    return {(a.keyword.value if a.keyword is not None else f"{a.star}{i}", ctx.code(a.value)) for i, a in given}
