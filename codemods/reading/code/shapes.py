"""Shapes of statements, calls and tests that many rules ask for, by their names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

import libcst as cst

from codemods.api import Context


def alone(line: cst.CSTNode | None) -> cst.BaseSmallStatement | None:
    """The statement that has a line for itself."""
    return line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None


def only_target(statement: cst.CSTNode | None) -> cst.BaseExpression | None:
    """`a` of `a = value`; None of `a = b = value`, and of anything else than an assignment."""
    is_one = isinstance(statement, cst.Assign) and len(statement.targets) == 1
    return statement.targets[0].target if isinstance(statement, cst.Assign) and is_one else None


def annotation_of(statement: cst.CSTNode | None) -> cst.Annotation | None:
    """The type in `name: T = value`, and in a field of a class."""
    parts = statement.children if statement is not None else ()
    return next((part for part in parts if isinstance(part, cst.Annotation)), None)


def parameters(function: cst.FunctionDef) -> tuple[cst.Param, ...]:
    """Those that a call can name."""
    return (*function.params.params, *function.params.kwonly_params)


def parameter_names(function: cst.FunctionDef) -> list[str]:
    """The names of those."""
    return [parameter.name.value for parameter in parameters(function)]


def only_returned(function: cst.FunctionDef) -> cst.BaseExpression | None:
    """What a function returns that does nothing else."""
    if function.decorators or function.asynchronous is not None or not isinstance(function.body, cst.IndentedBlock):
        return None
    *above, last = function.body.body
    returned = alone(last)
    return returned.value if isinstance(returned, cst.Return) and all(map(_is_docstring, above)) else None


def _is_docstring(statement: cst.BaseStatement) -> bool:
    said = alone(statement)
    return isinstance(said, cst.Expr) and isinstance(said.value, cst.BaseString)


def keywords(arguments: Iterable[cst.Arg]) -> dict[str, cst.BaseExpression]:
    """What is given by name."""
    return {argument.keyword.value: argument.value for argument in arguments if argument.keyword is not None}


def is_attribute(node: object, *names: str) -> TypeGuard[cst.Attribute]:
    """`model.module`, by the last name."""
    return isinstance(node, cst.Attribute) and node.attr.value in names


def is_call_to(node: object, *names: str) -> TypeGuard[cst.Call]:
    """`len(x)`, by the plain name of what is called."""
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in names


def callee(expression: cst.BaseExpression) -> cst.BaseExpression:
    """`f` of `f(x)`, and of `f`, as which a decorator can stand."""
    return expression.func if isinstance(expression, cst.Call) else expression


def receiver(call: cst.Call) -> cst.BaseExpression:
    """`net` of `net.parameters()`, for a call that is known to be one of a method."""
    return cst.ensure_type(call.func, cst.Attribute).value


def called_on(node: object, *methods: str) -> cst.BaseExpression | None:
    """`net` of `net.parameters()`, by the names of methods."""
    return node.func.value if isinstance(node, cst.Call) and is_attribute(node.func, *methods) else None


def front(node: cst.BaseExpression) -> cst.BaseExpression:
    """`self` of `self.net.layer`."""
    while isinstance(node, cst.Attribute):
        node = node.value
    return node


def indexed_front(node: cst.BaseExpression) -> cst.BaseExpression:
    """`self` of `self.layers[0].weight`."""
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        node = node.value
    return node


def went_over(loop: cst.For | cst.CompFor) -> tuple[cst.BaseExpression, cst.BaseExpression]:
    """`m` and `xs` of `for number, m in enumerate(xs)`, of `for m in list(xs)`, and of `for m in xs`."""
    target: cst.BaseExpression = loop.target
    over: cst.BaseExpression = loop.iter
    while is_call_to(over, "enumerate", *_SAME_ELEMENTS) and over.args:
        if is_call_to(over, "enumerate"):
            if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
                break
            target = target.elements[1].value
        over = over.args[0].value
    return target, over


_SAME_ELEMENTS = ("iter", "list", "reversed", "set", "sorted", "tqdm", "tuple")


def class_test(test: cst.CSTNode | None, ctx: Context) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """`model` and `FSDP` of `isinstance(model, FSDP)`."""
    if not isinstance(test, cst.Call) or ctx.code(test.func) != "isinstance" or len(test.args) != 2:
        return None
    return test.args[0].value, test.args[1].value


def comparison(test: cst.CSTNode | None) -> tuple[cst.BaseExpression, cst.BaseCompOp, cst.BaseExpression] | None:
    """The three parts of `a == b`; None of `a < b < c`."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    return test.left, test.comparisons[0].operator, test.comparisons[0].comparator


def key_of(subscript: cst.Subscript) -> str | None:
    """The literal key of `table["key"]`."""
    index = subscript.slice[0].slice if len(subscript.slice) == 1 else None
    key = index.value if isinstance(index, cst.Index) else None
    return str(key.evaluated_value) if isinstance(key, cst.SimpleString) else None
