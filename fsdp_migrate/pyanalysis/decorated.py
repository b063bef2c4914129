"""What a decorator of the program's own makes of what a function gives: `@sharded` above `def build():`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst

from .definitions import returns
from .origin import Origin
from .tree import Tree

if TYPE_CHECKING:
    from .callers import Function
    from .values import Values


def given_instead(
    values: Values, tree: Tree, call: cst.Call, where: Tree, function: Function
) -> tuple[list[Origin], bool]:
    """The models that come out of a call of the function by its decorators alone, and whether its own results do too.

    Within a decorator it is the function itself that is called.
    """
    given: list[Origin] = []
    own: set[Origin] = set()
    for at, decorator in _decorators(values, where, function):
        if at is not tree or not tree.contains(decorator, call):
            given += _results(values, at, decorator)
            own |= {*_of_the_function(values, at, decorator)}
    return [each for each in given if each not in own and values.is_model(each)], not own.isdisjoint(given)


def _decorators(values: Values, where: Tree, function: Function) -> Iterator[tuple[Tree, cst.FunctionDef]]:
    for above in function.decorators if isinstance(function, cst.FunctionDef) else ():
        for made in values.origins(where, above.decorator):
            if isinstance(made.node, cst.FunctionDef):
                yield made.tree, made.node


def _results(values: Values, tree: Tree, decorator: cst.FunctionDef) -> Iterator[Origin]:
    """What the function gives that is defined in a decorator, and that it returns: `return inner`."""
    for value in returns(tree, decorator):
        for inner in values.origins(tree, value):
            if isinstance(inner.node, cst.FunctionDef) and tree.contains(decorator, inner.node):
                for result in returns(tree, inner.node):
                    yield from values.origins(tree, result)


def _of_the_function(values: Values, tree: Tree, decorator: cst.FunctionDef) -> Iterator[Origin]:
    """What the calls of the decorator's parameter give."""
    params = {each.name.value for each in (*decorator.params.posonly_params, *decorator.params.params)}
    for node in tree.inside(decorator.body):
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in params:
            yield from values.origins(tree, node)
