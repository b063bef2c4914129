"""What is done under a condition, and the units that there are under the opposite one, are two sides of one `if`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ..draft import Draft

_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.NotEq: ast.Eq, ast.NotIn: ast.In, ast.IsNot: ast.Is}


def other_side(made: Draft, named: Sequence[str]) -> str:
    """The block above the loop over the units that an `else` can go on with; empty where there is none.

    It comes to stand below the other blocks and what is `named` there, which must not ask for what it binds.
    """
    opposite = _opposite(made.file.plain(made.selector.guard)) if made.selector is not None else ""
    for index, block in enumerate(made.before):
        choice = _only(made.file.plain(block)) if opposite and block.startswith("if ") else None
        if isinstance(choice, ast.If) and not choice.orelse and ast.dump(choice.test) == opposite:
            below = _parsed("\n".join(map(made.file.plain, (*made.before[index + 1 :], *named))))
            if below is not None and not _meet(choice, below):
                return block
    return ""


def _opposite(guard: str) -> str:
    said = _only(guard)
    test = said.value if isinstance(said, ast.Expr) else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return ast.dump(test.operand)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or type(test.ops[0]) not in _OPPOSITE:
        return ""
    return ast.dump(ast.Compare(test.left, [_OPPOSITE[type(test.ops[0])]()], test.comparators))


def _only(text: str) -> ast.stmt | None:
    parsed = _parsed(text) or []
    return parsed[0] if len(parsed) == 1 else None


def _parsed(text: str) -> list[ast.stmt] | None:
    try:
        return ast.parse(text).body
    except SyntaxError:
        return None


def _meet(choice: ast.If, below: Sequence[ast.stmt]) -> bool:
    """Whether statements use what an `if` binds, or give its test another value; they may fill the same dict."""
    bound = {name.id for name in _names(choice) if isinstance(name.ctx, ast.Store)}
    filled = {name.id for target in _filled(choice) for name in _names(target.value)}
    own = {id(target.value) for each in below for target in _filled(each)}
    keys = {ast.dump(target.slice) for target in _filled(choice)}
    if any(ast.dump(target.slice) in keys for each in below for target in _filled(each)):
        return True
    others = [name for each in below for name in _names(each) if id(name) not in own]
    asked = {name.id for name in _names(choice)}
    return any(
        name.id in (bound | filled if isinstance(name.ctx, ast.Load) else bound | filled | asked) for name in others
    )


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Name))


def _filled(node: ast.AST) -> Iterator[ast.Subscript]:
    """`fsdp_kwargs["mesh"] = …`"""
    for each in ast.walk(node):
        if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store) and isinstance(each.value, ast.Name):
            yield each
