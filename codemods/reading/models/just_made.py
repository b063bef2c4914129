"""Whether a model that is wrapped somewhere is seen to be plain still at one place of a method.

What an attribute holds is asked of the whole program. `self.model = self.build()` right above says more.
"""

from __future__ import annotations

import libcst as cst

from codemods.api import Context, ModelKind
from codemods.reading.code.enclosing import upward
from codemods.reading.code.places import place, same
from codemods.reading.code.shapes import alone


def is_just_made(ctx: Context, model: cst.BaseExpression) -> bool:
    """Whether a statement above binds it to something plain, and nothing in between can wrap it."""
    name = place(model)
    if name is None or not isinstance(model, cst.Attribute):
        return False  # a name is followed anyway
    for inner, outer in upward(ctx, model):
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef, cst.Lambda)):
            return False
        if isinstance(outer, (cst.For, cst.While)) and inner is outer.body and _touches(ctx, outer.body, name):
            return False
        if isinstance(outer, (cst.IndentedBlock, cst.Module)):
            body: list[cst.CSTNode] = list(outer.body)
            for statement in reversed(body[: body.index(inner)]):
                value = _bound_to(statement, name)
                if value is not None:
                    return ModelKind.FSDP not in ctx.kinds(value)
                if _touches(ctx, statement, name):
                    return False
    return False


def _bound_to(statement: cst.CSTNode, name: str) -> cst.BaseExpression | None:
    """The value of `self.model = value`."""
    assignment = alone(statement)
    is_it = isinstance(assignment, cst.Assign) and [place(t.target) for t in assignment.targets] == [name]
    return assignment.value if isinstance(assignment, cst.Assign) and is_it else None


def _touches(ctx: Context, statement: cst.CSTNode, name: str) -> bool:
    """Whether a statement binds the model, or calls a method of its owner that does, as far as that is seen."""
    owner = name.rpartition(".")[0]
    for node in ctx.inside(statement):
        if isinstance(node, cst.AssignTarget) and place(node.target) == name:
            return True
        if isinstance(node, cst.Call):
            receiver = place(node.func.value) if isinstance(node.func, cst.Attribute) else None
            given = {place(argument.value) for argument in node.args}
            if owner in given or (receiver == owner and not _leaves_alone(ctx, node, name)):
                return True
    return False


def _leaves_alone(ctx: Context, call: cst.Call, name: str) -> bool:
    attribute = name.rpartition(".")[2]
    functions = ctx.runs(call)
    return bool(functions) and not any(
        isinstance(node, cst.AssignTarget)
        and isinstance(node.target, cst.Attribute)
        and same(node.target.attr.value, attribute)
        for where, function in functions
        for node in where.inside(function.body)
    )
