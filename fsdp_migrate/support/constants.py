"""Expressions whose value is known before the program runs, and what stays of those around them."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

import libcst as cst

_LITERALS = (ast.Constant, ast.Tuple, ast.UnaryOp, ast.USub, ast.Load)
_EMPTY = frozenset({"()", "[]", "{}", "set()", "frozenset()"})
_PURE_CALLS = frozenset(
    {"isinstance", "len", "getattr", "hasattr", "tuple", "list", "set", "dict", "frozenset", "type", "any", "all"}
)
_NUMERIC: dict[str, Callable[[float], object]] = {"bool": bool, "float": float, "int": int, "math.isinf": math.isinf}
_NAMES: dict[bool, cst.BaseExpression] = {True: cst.Name("True"), False: cst.Name("False")}


def code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node).strip()


def value(node: cst.BaseExpression) -> tuple[Any] | None:
    """The value of a literal that cannot be changed, in a tuple of its own."""
    if not isinstance(node, (cst.Name, cst.SimpleString, cst.BaseNumber, cst.Tuple, cst.UnaryOperation)):
        return None
    tree = ast.parse(code(node), mode="eval").body
    return (ast.literal_eval(tree),) if is_literal(tree) else None


def is_literal(tree: ast.expr) -> bool:
    return all(isinstance(each, _LITERALS) for each in ast.walk(tree))


def is_empty(node: cst.BaseExpression) -> bool:
    return code(node) in _EMPTY


def is_pure(node: cst.CSTNode) -> bool:
    """Whether leaving an expression out changes nothing."""
    tree = ast.parse(f"({code(node)})", mode="eval")
    calls = [each.func for each in ast.walk(tree) if isinstance(each, ast.Call)]
    waits = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
    return all(map(_only_tells, calls)) and not any(isinstance(each, waits) for each in ast.walk(tree))


def _only_tells(function: ast.expr) -> bool:
    """`isinstance(…)`, `model.parameters()`."""
    if isinstance(function, ast.Attribute):
        return function.attr == "parameters"
    return isinstance(function, ast.Name) and function.id in _PURE_CALLS


def truth(node: cst.BaseExpression) -> bool | None:
    """Whether a condition always holds, or never; None where run time decides."""
    if is_empty(node):
        return False
    known = value(node)
    return None if known is None else bool(known[0])


class Fold(cst.CSTTransformer):
    """Works out what has become constant in expressions, the inner ones first."""

    def leave_Comparison(self, original_node: cst.Comparison, updated_node: cst.Comparison) -> cst.BaseExpression:
        if len(updated_node.comparisons) != 1:
            return updated_node
        (target,) = updated_node.comparisons
        if isinstance(target.operator, (cst.In, cst.NotIn)) and is_empty(target.comparator):
            return _NAMES[isinstance(target.operator, cst.NotIn)]
        left, right = value(updated_node.left), value(target.comparator)
        if left is None or right is None:
            return updated_node
        if isinstance(target.operator, (cst.Is, cst.IsNot)):
            return _NAMES[(left[0] is right[0]) == isinstance(target.operator, cst.Is)]
        if isinstance(target.operator, (cst.Equal, cst.NotEqual)):
            return _NAMES[(left[0] == right[0]) == isinstance(target.operator, cst.Equal)]
        if isinstance(target.operator, (cst.In, cst.NotIn)):
            return _NAMES[(left[0] in right[0]) == isinstance(target.operator, cst.In)]
        return updated_node

    def leave_UnaryOperation(
        self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation
    ) -> cst.BaseExpression:
        known = truth(updated_node.expression) if isinstance(updated_node.operator, cst.Not) else None
        return updated_node if known is None else _NAMES[not known]

    def leave_BooleanOperation(
        self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation
    ) -> cst.BaseExpression:
        left = truth(updated_node.left)
        if left is not None:
            goes_on = left == isinstance(updated_node.operator, cst.And)
            return _in_its_place(updated_node, updated_node.right if goes_on else updated_node.left)
        # `a is None and True`: what is a truth value anyway stays as it is.
        neutral = value(updated_node.right) == (isinstance(updated_node.operator, cst.And),)
        if neutral and _is_truth_value(updated_node.left):
            return _in_its_place(updated_node, updated_node.left)
        return updated_node

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        test = condition(updated_node.test)
        known = truth(test)
        if known is None:
            return updated_node.with_changes(test=test)
        return _in_its_place(updated_node, updated_node.body if known else updated_node.orelse)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        name = updated_node.func.value if isinstance(updated_node.func, cst.Name) else ""
        values = [arg.value for arg in updated_node.args if not arg.star and arg.keyword is None]
        if name == "isinstance" and len(values) == 2:
            never = code(values[0]) == "None" or is_empty(values[1])
            return _NAMES[False] if never else updated_node
        if name in ("tuple", "list", "set") and len(values) == 1 and is_empty(values[0]):
            return cst.parse_expression({"tuple": "()", "list": "[]", "set": "set()"}[name])
        worked_out = _worked_out(code(updated_node.func), [value(each) for each in values])
        if worked_out is not None and len(values) == len(updated_node.args):
            return worked_out
        kept = [arg for arg in updated_node.args if not (arg.star and is_empty(arg.value)) and not _is_default(arg)]
        if len(kept) == len(updated_node.args):
            return updated_node
        if kept:
            kept[-1] = kept[-1].with_changes(comma=updated_node.args[-1].comma)
        return updated_node.with_changes(args=kept)

    def leave_CompFor(self, original_node: cst.CompFor, updated_node: cst.CompFor) -> cst.CompFor:
        tests = [each.with_changes(test=condition(each.test)) for each in updated_node.ifs]
        return updated_node.with_changes(ifs=[each for each in tests if truth(each.test) is not True])

    def leave_List(self, original_node: cst.List, updated_node: cst.List) -> cst.List:
        kept = [
            each
            for each in updated_node.elements
            if not isinstance(each, cst.StarredElement) or not is_empty(each.value)
        ]
        return updated_node.with_changes(elements=kept) if len(kept) < len(updated_node.elements) else updated_node

    def leave_ListComp(self, original_node: cst.ListComp, updated_node: cst.ListComp) -> cst.BaseExpression:
        loop = updated_node.for_in
        if is_empty(loop.iter) or any(truth(each.test) is False for each in loop.ifs):
            return cst.List([])
        plain = not loop.ifs and loop.inner_for_in is None and code(updated_node.elt) == code(loop.target)
        if plain and isinstance(loop.iter, cst.Call) and isinstance(updated_node.elt, cst.Name):
            return cst.Call(cst.Name("list"), [cst.Arg(loop.iter)])
        return updated_node

    def leave_SetComp(self, original_node: cst.SetComp, updated_node: cst.SetComp) -> cst.BaseExpression:
        loop = updated_node.for_in
        never = is_empty(loop.iter) or any(truth(each.test) is False for each in loop.ifs)
        return cst.Call(cst.Name("set")) if never else updated_node


def _worked_out(function: str, values: Sequence[tuple[Any] | None]) -> cst.BaseExpression | None:
    """What a function makes of a number; the module of a kind of device that has a name."""
    if function == "torch.get_device_module" and len(values) == 1 and values[0] is not None:
        return cst.parse_expression(f"torch.{values[0][0]}")
    known = _NUMERIC.get(function)
    if known is None or len(values) != 1 or values[0] is None or not isinstance(values[0][0], (bool, int, float)):
        return None
    return cst.parse_expression(repr(known(values[0][0])))


def condition(test: cst.BaseExpression) -> cst.BaseExpression:
    """A condition, of which only the truth counts: `a and True` is `a`."""
    if not isinstance(test, cst.BooleanOperation):
        return test
    left, right = condition(test.left), condition(test.right)
    known = truth(right)
    if known is None or truth(left) is not None:
        return test.with_changes(left=left, right=right)
    if known == isinstance(test.operator, cst.And):
        return _in_its_place(test, left)
    return right if is_pure(left) else test


def _is_truth_value(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.BooleanOperation):
        return _is_truth_value(node.left) and _is_truth_value(node.right)
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.operator, cst.Not)
    return isinstance(node, cst.Comparison)


def _is_default(arg: cst.Arg) -> bool:
    """`group=None` and `planner=None`, which every function of torch.distributed takes for granted."""
    return arg.keyword is not None and arg.keyword.value in ("group", "planner") and code(arg.value) == "None"


def _in_its_place(whole: cst.BaseExpression, part: cst.BaseExpression) -> cst.BaseExpression:
    """A part of an expression that stands for all of it now, with the parentheses that it needs there."""
    atomic = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.Tuple, cst.List, cst.Dict, cst.SimpleString)
    if not whole.lpar or part.lpar or isinstance(part, (*atomic, cst.BaseNumber, cst.ListComp)):
        return part
    return part.with_changes(lpar=whole.lpar, rpar=whole.rpar)
