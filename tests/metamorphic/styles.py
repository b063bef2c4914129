"""Other styles of the same program: what one writes in a line another writes in two.

A finding that a style loses is one that real programs lose. `make styles` writes every program of `tests/rules` in each
of them (`everywhere.py`), and lists those that are decided about otherwise. That a name in between makes a program need
more of a person, or less support, is no fault by itself; a finding that is gone, with nothing in its stead, mostly is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy

Style = Callable[[ast.Module], None]
"""Changes a tree in place."""


def variables(tree: ast.Module) -> None:
    """`params = net.parameters()`, then `SGD(params)`: each call that a call is given gets a name above."""
    for block in _blocks(tree):
        for statement in [*block]:
            call = statement.value if isinstance(statement, (ast.Assign, ast.Expr, ast.Return)) else None
            if isinstance(call, ast.Call):
                above = list(_named(call, len(block)))
                at = block.index(statement)
                block[at:at] = above


def _named(call: ast.Call, number: int) -> Iterator[ast.stmt]:
    for place, argument in enumerate(call.args):
        if isinstance(argument, ast.Call):
            name = f"value_{call.lineno}_{number}_{place}"
            yield _set(name, argument)
            call.args[place] = ast.Name(name, ast.Load())
    for keyword in call.keywords:
        if keyword.arg and isinstance(keyword.value, ast.Call):
            name = f"{keyword.arg}_{call.lineno}_{number}"
            yield _set(name, keyword.value)
            keyword.value = ast.Name(name, ast.Load())


def results(tree: ast.Module) -> None:
    """`outcome = …`, then `return outcome`."""
    for block in _blocks(tree):
        last = block[-1]
        if isinstance(last, ast.Return) and last.value is not None and not isinstance(last.value, ast.Name):
            block[-1:] = [_set("outcome", last.value), ast.Return(ast.Name("outcome", ast.Load()))]


def types(tree: ast.Module) -> None:
    """`model: object = …`."""
    outer = {name for node in ast.walk(tree) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    for block in _blocks(tree):
        for at, each in enumerate(block):
            target = each.targets[0] if isinstance(each, ast.Assign) and len(each.targets) == 1 else None
            name = target.value if isinstance(target, ast.Attribute) else target
            is_own = isinstance(name, ast.Name) and (name.id == "self" if name is not target else name.id not in outer)
            if isinstance(each, ast.Assign) and isinstance(target, (ast.Name, ast.Attribute)) and is_own:
                simple = int(isinstance(target, ast.Name))
                block[at] = ast.AnnAssign(target, ast.Name("object", ast.Load()), each.value, simple)


def other_branch_first(tree: ast.Module) -> None:
    """`if not sharded: … else: …`."""
    for node in ast.walk(tree):
        is_chain = isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
        if (isinstance(node, ast.If) and node.orelse and not is_chain) or isinstance(node, ast.IfExp):
            node.body, node.orelse = node.orelse, node.body  # type: ignore[assignment]
            test = node.test
            is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
            node.test = test.operand if is_negated and isinstance(test, ast.UnaryOp) else ast.UnaryOp(ast.Not(), test)


def choices_as_branches(tree: ast.Module) -> None:
    """`if big: x = a`, `else: x = b` for `x = a if big else b`."""
    for block in _blocks(tree):
        for at, each in enumerate(block):
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.IfExp):
                yes, no = (ast.Assign(deepcopy(each.targets), side) for side in (each.value.body, each.value.orelse))
                block[at] = ast.If(each.value.test, [yes], [no])


def behind_a_return(tree: ast.Module) -> None:
    """What stands behind `if x: return` stands in its `else`."""
    for block in _blocks(tree):
        for at, each in enumerate(block[:-1]):
            if isinstance(each, ast.If) and not each.orelse and isinstance(each.body[-1], (ast.Return, ast.Raise)):
                each.orelse, block[at + 1 :] = block[at + 1 :], []
                break


def contexts_apart(tree: ast.Module) -> None:
    """`with a:` and in it `with b:`, for `with a, b:`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and len(node.items) > 1:
            node.body = [ast.With(node.items[1:], node.body)]
            node.items = node.items[:1]


STYLES: tuple[Style, ...] = (
    variables,
    results,
    types,
    other_branch_first,
    choices_as_branches,
    behind_a_return,
    contexts_apart,
)


def written_as(style: Style, text: str) -> str:
    """The text in this style, in the layout of `ast`."""
    tree = ast.parse(text)
    style(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _set(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    """The blocks of a program, but for those of classes."""
    found = []
    for node in ast.walk(tree):
        blocks = [getattr(node, field, None) for field in ("body", "orelse", "finalbody")]
        found += [each for each in blocks if isinstance(each, list) and each and not isinstance(node, ast.ClassDef)]
    return found
