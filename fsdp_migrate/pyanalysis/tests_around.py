"""The tests that a place of a function stands under, and the texts that a name can be there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from .flow import reaching
from .tree import Tree

_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)


def tests_at(tree: Tree, node: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, bool]]:
    """Each test whose answer is known where `node` runs, and the answer, from the inside to the function around it."""
    inner = node
    for outer in tree.ancestors(node):
        if isinstance(outer, (cst.FunctionDef, cst.ClassDef)):
            return
        if isinstance(outer, (cst.If, cst.IfExp)) and inner is not outer.test:
            yield from parts(outer.test, inner is outer.body)
        elif isinstance(outer, (cst.IndentedBlock, cst.Module)):
            for left in left_before(outer.body, inner):
                yield from parts(left.test, False)
        inner = outer


def parts(test: cst.BaseExpression, holds: bool) -> Iterator[tuple[cst.BaseExpression, bool]]:
    """`not a`, `a and b`: what is known of `a` and of `b`. Where `a and b` is false, that is known of the two."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        yield from parts(test.expression, not holds)
    elif isinstance(test, cst.BooleanOperation) and holds is isinstance(test.operator, cst.And):
        yield from parts(test.left, holds)
        yield from parts(test.right, holds)
    else:
        yield test, holds


def left_before(statements: object, inner: cst.CSTNode) -> Iterator[cst.If]:
    """`if test: return …` above: behind it the test is false."""
    assert isinstance(statements, (list, tuple))
    for statement in statements:
        if statement is inner:
            return
        if isinstance(statement, cst.If) and statement.orelse is None and leaves(statement.body):
            yield statement


def leaves(body: cst.BaseSuite) -> bool:
    """Whether a block ends by leaving the one around it."""
    last = body.body[-1] if body.body else None
    small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
    if isinstance(small, cst.With) and leaves(small.body):
        end = small.body.body[-1]  # what is raised there may be caught by what the `with` enters
        return not isinstance(end, cst.SimpleStatementLine) or not isinstance(end.body[-1], cst.Raise)
    return isinstance(small, _LEAVES)


class Texts(NamedTuple):
    """What is known of a text: that it is one of these (None: of any), and none of those."""

    only: frozenset[str] | None
    never: frozenset[str]

    def has(self, text: str) -> bool:
        return text not in self.never and (self.only is None or text in self.only)


def texts_at(tree: Tree, name: cst.BaseExpression, at: cst.CSTNode) -> Texts:
    """What a name is compared with, where a place stands: `model` behind `if name == "model":`."""
    only, never = None, frozenset[str]()
    if not isinstance(name, cst.Name):
        return Texts(only, never)
    for test, holds in tests_at(tree, at):
        if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
            continue
        operator, comparator = test.comparisons[0].operator, test.comparisons[0].comparator
        is_equal = isinstance(operator, (cst.Equal, cst.In))
        texts = _texts(comparator, isinstance(operator, (cst.In, cst.NotIn)))
        if texts is None or not isinstance(operator, (cst.Equal, cst.NotEqual, cst.In, cst.NotIn)):
            continue
        if not _is_same(tree, test.left, name):
            continue
        if is_equal is holds:
            only = texts if only is None else only & texts
        else:
            never |= texts
    return Texts(only, never)


def _texts(node: cst.BaseExpression, is_container: bool) -> frozenset[str] | None:
    if isinstance(node, cst.SimpleString) and not is_container:
        return frozenset({str(node.evaluated_value)})
    if not is_container or not isinstance(node, (cst.List, cst.Tuple, cst.Set)):
        return None
    values = [element.value for element in node.elements]
    known = frozenset(str(value.evaluated_value) for value in values if isinstance(value, cst.SimpleString))
    return known if all(isinstance(value, cst.SimpleString) for value in values) else None


def _is_same(tree: Tree, one: cst.BaseExpression, other: cst.Name) -> bool:
    """Whether two uses of a name see the same bindings."""
    if not isinstance(one, cst.Name) or one.value != other.value:
        return False
    scope = tree.scope_of[one].lookup(one.value)
    if scope is None or scope is not tree.scope_of[other].lookup(other.value):
        return False
    return set(reaching(tree, one, one.value)) == set(reaching(tree, other, other.value))
