"""A choice between a model and what is inside of its wrapper, which comes to one thing where there is no wrapper."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, ModelKind

INNER = frozenset({"module", "_fsdp_wrapped_module"})
"""The attributes by which FSDP1's wrapper gave the model inside of it."""
Choice = cst.If | cst.IfExp
Kept = cst.BaseExpression | cst.BaseStatement | cst.BaseSmallStatement


def choice_of_inner(node: cst.Attribute, ctx: Context) -> tuple[Choice, Kept] | None:
    """`m.module.state_dict() if hasattr(m, "module") else m.state_dict()`, or an `if` with such a line in each branch,
    and what is written for a model without a wrapper.

    None where something has what is asked for, as a DDP model has, and where it is only unwrapped for later.
    """
    choice = next((outer for outer in ctx.ancestors(node) if isinstance(outer, Choice)), None)
    branches = _branches(choice, ctx) if choice is not None else None
    if choice is None or branches is None or "#" in ctx.code(choice):
        return None
    model, name, test = ctx.code(node.value), node.attr.value, ctx.code(choice.test).replace('"', "'")
    inner, outer = ("".join(ctx.code(each).split()) for each in branches)
    if test != f"hasattr({model}, '{name}')" or inner.replace(f"{model}.{name}", model) != outer:
        return None
    if name == "module":
        is_only_unwrapped = outer in (model, f"return{model}") or outer.endswith(f"={model}")
        if is_only_unwrapped or ctx.kinds(node.value) != {ModelKind.FSDP}:
            return None
    return choice, branches[1]


def _branches(choice: Choice, ctx: Context) -> tuple[Kept, Kept] | None:
    if isinstance(choice, cst.IfExp):
        return choice.body, choice.orelse
    if not isinstance(choice.orelse, cst.Else) or isinstance(ctx.parent(choice), cst.If):
        return None
    one, other = choice.body.body, choice.orelse.body.body
    if len(one) != 1 or len(other) != 1 or "\n" in ctx.code(other[0]):
        return None
    return one[0], other[0]


def is_given_up(choice: cst.CSTNode, ctx: Context) -> bool:
    """Whether an `if` goes, and what stands in its `else` takes its place."""
    if not isinstance(choice, cst.If) or not isinstance(choice.test, cst.Call):
        return False
    asked = (node for node in ctx.inside(choice.body) if isinstance(node, cst.Attribute) and node.attr.value in INNER)
    return any(choice_of_inner(node, ctx) is not None for node in asked)
