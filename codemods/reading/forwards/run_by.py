"""What a model's forward runs of its own class."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context
from codemods.reading.code.shapes import called_on


def run_by(forward: cst.FunctionDef, owner: cst.ClassDef, ctx: Context) -> list[cst.FunctionDef]:
    """A forward, and the methods of its class that it calls."""
    methods = {each.name.value: each for each in owner.body.body if isinstance(each, cst.FunctionDef)}
    found = [forward]
    for method in found:  # grows
        calls = (node for node in ctx.inside(method.body) if isinstance(node, cst.Call))
        called = dict.fromkeys(methods[name] for call in calls for name in methods if is_own(called_on(call, name)))
        found += [each for each in called if each not in found]
    return found


def is_own(owner: cst.BaseExpression | None) -> bool:
    return isinstance(owner, cst.Name) and owner.value == "self"
