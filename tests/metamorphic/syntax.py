"""Python that few programs hold, put around what the rules look for: none of it may stop the tool.

What is decided about such a program may be another thing than about the plain one; that a rule raises, or that what it
writes is no Python, is a fault. Each of these found one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

Syntax = Callable[[ast.Module], None]
"""Changes a tree in place."""


def in_finally(tree: ast.Module) -> None:
    """`try: …`, `finally: pass` around the body of each function: a `try` without handlers."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = [ast.Try(node.body, [], [], [ast.Pass()])]


def chosen(tree: ast.Module) -> None:
    """`build(x) if chosen else None` for each call of a function's body."""
    for node in list(ast.walk(tree)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = [_Chosen().visit(statement) for statement in node.body]


class _Chosen(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        return ast.IfExp(ast.Name("chosen", ast.Load()), node, ast.Constant(None))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node  # has its turn

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        return node


def from_dicts(tree: ast.Module) -> None:
    """`f(**{"a": 1})` for `f(a=1)`."""
    for node in ast.walk(tree):
        named = [each for each in node.keywords if each.arg] if isinstance(node, ast.Call) else []
        if isinstance(node, ast.Call) and named:
            made = ast.Dict([ast.Constant(each.arg) for each in named], [each.value for each in named])
            node.keywords = [each for each in node.keywords if not each.arg] + [ast.keyword(None, made)]


def from_lists(tree: ast.Module) -> None:
    """`f(*[a, b])` for `f(a, b)`."""
    for node in ast.walk(tree):
        is_super = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
        if isinstance(node, ast.Call) and node.args and not is_super:
            node.args = [ast.Starred(ast.List(node.args, ast.Load()), ast.Load())]


def unpacked(tree: ast.Module) -> None:
    """`[model, *rest] = [build()]` for `model = build()`."""
    for node in _assignments(tree):
        node.targets = [
            ast.List([node.targets[0], ast.Starred(ast.Name("rest", ast.Store()), ast.Store())], ast.Store())
        ]
        node.value = ast.List([node.value], ast.Load())


def comprehended(tree: ast.Module) -> None:
    """`model = [build() for _ in range(1)][0]`."""
    for node in _assignments(tree):
        over = ast.comprehension(
            ast.Name("_", ast.Store()), ast.Call(ast.Name("range", ast.Load()), [ast.Constant(1)], []), [], 0
        )
        node.value = ast.Subscript(ast.ListComp(node.value, [over]), ast.Constant(0), ast.Load())


def called_at_once(tree: ast.Module) -> None:
    """`model = (lambda: build())()`."""
    nothing = ast.arguments([], [], None, [], [], None, [])
    for node in _assignments(tree):
        node.value = ast.Call(ast.Lambda(nothing, node.value), [], [])


def _assignments(tree: ast.Module) -> Iterator[ast.Assign]:
    """Those of a call to one name or attribute, in functions."""
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    found = dict.fromkeys(each for function in functions for each in ast.walk(function))
    for node in [each for each in found if isinstance(each, ast.Assign)]:
        is_one = len(node.targets) == 1 and isinstance(node.targets[0], (ast.Name, ast.Attribute))
        if is_one and isinstance(node.value, ast.Call):
            yield node


SYNTAX: tuple[Syntax, ...] = (
    in_finally,
    chosen,
    from_dicts,
    from_lists,
    unpacked,
    comprehended,
    called_at_once,
)
