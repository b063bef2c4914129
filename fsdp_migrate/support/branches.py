"""Statements of a function that cannot run, or have nothing left to do, once some of its values are known."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import libcst as cst

from .constants import Fold, code, condition, is_empty, is_literal, is_pure, truth

_ENDS = (cst.Return, cst.Raise, cst.Continue, cst.Break)


def specialised(function: cst.FunctionDef, values: Mapping[str, str]) -> cst.FunctionDef:
    """A function whose parameters have these values, without the branches that they rule out."""
    tree = _called_with(function, values)
    while True:
        before = tree
        for step in (Fold(), _Branches()):
            tree = cst.ensure_type(tree.visit(step), cst.FunctionDef)
        tree = _without_unused(tree)
        tree = cst.ensure_type(tree.visit(_Substitute(_constant_locals(tree, values))), cst.FunctionDef)
        if tree.deep_equals(before):
            return tree


def _called_with(function: cst.FunctionDef, values: Mapping[str, str]) -> cst.FunctionDef:
    """A function with values in the place of parameters; of one that the body binds anew, as far as there."""
    body = []
    known = dict(values)
    for statement in function.body.body:
        body.append(statement.visit(_Substitute(known)))
        for name in _bound_by(statement):
            known.pop(name, None)
    return function.with_changes(body=function.body.with_changes(body=body))


def _bound_by(statement: cst.CSTNode) -> list[str]:
    """The names that a statement of one line binds; by others, names are not bound anew."""
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    targets = [each.target for each in small.targets] if isinstance(small, cst.Assign) else []
    return [target.value for target in targets if isinstance(target, cst.Name)]


class _Substitute(cst.CSTTransformer):
    """Puts values in the place of names, and takes out the assignments that gave these names the values."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        text = self.values.get(updated_node.value)
        return updated_node if text is None else cst.parse_expression(text)

    def leave_FormattedStringExpression(
        self, original_node: cst.FormattedStringExpression, updated_node: cst.FormattedStringExpression
    ) -> cst.BaseFormattedStringContent:
        """A string within another would need other quotes up to Python 3.11, and says itself."""
        given = updated_node.expression
        is_put_in = isinstance(given, cst.SimpleString) and not isinstance(original_node.expression, cst.SimpleString)
        return (
            cst.FormattedStringText(given.raw_value)
            if is_put_in and isinstance(given, cst.SimpleString)
            else updated_node
        )

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Param(self, original_node: cst.Param, updated_node: cst.Param) -> cst.Param:
        return updated_node.with_changes(name=original_node.name)

    def leave_AssignTarget(self, original_node: cst.AssignTarget, updated_node: cst.AssignTarget) -> cst.AssignTarget:
        return original_node

    def visit_AnnAssign_target(self, node: cst.AnnAssign) -> None:
        return None

    def leave_AnnAssign(self, original_node: cst.AnnAssign, updated_node: cst.AnnAssign) -> cst.AnnAssign:
        return updated_node.with_changes(target=original_node.target)


class _Branches(cst.CSTTransformer):
    """Takes out the branches whose condition never holds, and what stands behind the end of a block."""

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        kept: list[cst.BaseStatement] = []
        for statement in updated_node.body:
            here = _reduced(statement)
            if here and here[0] is not statement and not kept and updated_node.body[0] is statement:
                here = [here[0].with_changes(leading_lines=_comments(here[0])), *here[1:]]
            kept += here
            if kept and _ends(kept[-1]):
                break
        return updated_node.with_changes(body=kept)


def _comments(statement: cst.BaseStatement) -> list[cst.EmptyLine]:
    lines: Sequence[cst.EmptyLine] = getattr(statement, "leading_lines", ())
    return [line for line in lines if line.comment is not None]


def _reduced(statement: cst.BaseStatement) -> list[cst.BaseStatement]:
    """What is left of a statement."""
    if isinstance(statement, cst.If):
        return _reduced_if(statement)
    if isinstance(statement, (cst.For, cst.With)) and not _statements(statement.body):
        return []
    return [] if isinstance(statement, cst.For) and is_empty(statement.iter) else [statement]


def _reduced_if(statement: cst.If) -> list[cst.BaseStatement]:
    test = condition(statement.test)
    otherwise: list[cst.BaseStatement] = []
    if isinstance(statement.orelse, cst.If):
        otherwise = _reduced_if(statement.orelse)
    elif isinstance(statement.orelse, cst.Else):
        otherwise = list(_statements(statement.orelse.body))
    known = truth(test)
    body = list(_statements(statement.body))
    if known is not None:
        return _in_place_of(statement, body if known else otherwise)
    if not body:
        body = [cst.SimpleStatementLine([cst.Pass()])]
    return [statement.with_changes(test=test, body=_block(statement.body, body), orelse=_orelse(statement, otherwise))]


def _orelse(statement: cst.If, otherwise: list[cst.BaseStatement]) -> cst.If | cst.Else | None:
    if not otherwise:
        return None
    if isinstance(statement.orelse, cst.If) and len(otherwise) == 1 and isinstance(otherwise[0], cst.If):
        return otherwise[0].with_changes(leading_lines=statement.orelse.leading_lines)
    if isinstance(statement.orelse, cst.Else):
        return statement.orelse.with_changes(body=_block(statement.orelse.body, otherwise))
    return cst.Else(body=cst.IndentedBlock(otherwise))


def _in_place_of(statement: cst.If, body: list[cst.BaseStatement]) -> list[cst.BaseStatement]:
    """The statements of a branch, below the comment that stood above the whole."""
    if not body:
        return []
    first = body[0]
    lines = [*statement.leading_lines, *_comments(first)]
    return [first.with_changes(leading_lines=lines), *body[1:]]


def _statements(body: cst.BaseSuite) -> Sequence[cst.BaseStatement]:
    assert isinstance(body, cst.IndentedBlock), "support functions have a statement a line"
    return body.body


def _block(old: cst.BaseSuite, body: list[cst.BaseStatement]) -> cst.BaseSuite:
    return old.with_changes(body=body)


def _ends(statement: cst.BaseStatement) -> bool:
    """Whether nothing behind a statement runs."""
    if isinstance(statement, cst.SimpleStatementLine):
        return isinstance(statement.body[-1], _ENDS)
    if isinstance(statement, cst.If) and statement.orelse is not None:
        last = [_statements(statement.body)[-1:]]
        last.append(
            [statement.orelse] if isinstance(statement.orelse, cst.If) else _statements(statement.orelse.body)[-1:]
        )
        return all(each and _ends(each[0]) for each in last)
    return False


def _constant_locals(function: cst.FunctionDef, gone: Collection[str]) -> dict[str, str]:
    """The local names that are bound once, to a number, a string, to None or to an empty tuple."""
    tree = ast.parse(code(function))
    stores = _stores(tree) - Counter([*gone])  # the parameters that are replaced are bound no more
    found = {}
    for node in ast.walk(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        target = node.target if isinstance(node, ast.AnnAssign) else target
        given = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if isinstance(target, ast.Name) and stores[target.id] == 1 and given is not None and _is_plain(given):
            found[target.id] = ast.unparse(given).replace("'", '"')
    return found


def _is_plain(node: ast.expr) -> bool:
    return is_literal(node) and isinstance(ast.literal_eval(node) or None, (bool, int, float, str, type(None)))


def _stores(tree: ast.AST) -> Counter[str]:
    """How often each name is bound."""
    names = [each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)]
    return Counter([*names, *(each.arg for each in ast.walk(tree) if isinstance(each, ast.arg))])


def rebound(function: ast.FunctionDef) -> frozenset[str]:
    """The names that a function binds again where what they hold is then not known: in a loop, inside of a branch."""
    args = Counter(each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs))
    lines = [node for node in function.body if isinstance(node, ast.Assign)]
    once = Counter(target.id for line in lines for target in line.targets if isinstance(target, ast.Name))
    return frozenset((_stores(function) - args - once).keys())


def _without_unused(function: cst.FunctionDef) -> cst.FunctionDef:
    """Without the assignments and inner functions that nobody reads any more."""
    tree = ast.parse(code(function))
    read = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    shared = {name for each in ast.walk(tree) if isinstance(each, (ast.Nonlocal, ast.Global)) for name in each.names}
    return cst.ensure_type(function.visit(_Unused(read | shared)), cst.FunctionDef)


class _Unused(cst.CSTTransformer):
    def __init__(self, used: set[str]) -> None:
        self.used = used
        self.depth = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.depth += 1

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.RemovalSentinel:
        self.depth -= 1
        return cst.RemoveFromParent() if self.depth and updated_node.name.value not in self.used else updated_node

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        (small,) = updated_node.body
        target = small.targets[0].target if isinstance(small, cst.Assign) and len(small.targets) == 1 else None
        target = small.target if isinstance(small, cst.AnnAssign) else target
        given = small.value if isinstance(small, (cst.Assign, cst.AnnAssign)) else None
        unused = isinstance(target, cst.Name) and target.value not in self.used and given is not None
        return cst.RemoveFromParent() if unused and given is not None and is_pure(given) else updated_node
