"""Finds code by a pattern and writes other code in its place; what is not found stays as it is, to the byte.

A pattern is Python: a capital letter stands for any expression, and `**REST` for the arguments that are left.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

REST = "REST"
Found = dict[str, str]
"""What the letters of a pattern stand for."""


def replaced(text: str, pattern: str, by: str, within: type[ast.AST] | None = None) -> str:
    """`text` with `by` in the place of everything that `pattern` finds, inside of a node of the type `within`."""
    tree, wanted = ast.parse(text), _parsed(pattern)
    spans = [
        (_span(text, node), _filled(by, found))
        for node in _nodes(tree, within)
        if (found := _match(wanted, node, text))
    ]
    for (start, end), new in sorted(spans, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def swapped(text: str, first: str, second: str) -> str:
    """`text` with the statement that `first` finds, and the next in its block that `second` does, exchanged."""
    pair = _pair(text, first, second)
    if pair is None:
        return text
    (a, b), (c, d) = (_span(text, node) for node in pair)
    return text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]


def moved_up(text: str, statement: str, before: str) -> str:
    """`text` with `statement` in front of the one that `before` finds in its block."""
    pair = _pair(text, before, statement)
    if pair is None:
        return text
    (a, _), (c, d) = (_span(text, node) for node in pair)
    indent = " " * pair[0].col_offset
    return text[:a] + text[c:d] + "\n" + indent + text[a:c] + "pass" + text[d:]


def _pair(text: str, first: str, second: str) -> tuple[ast.stmt, ast.stmt] | None:
    for block in _blocks(ast.parse(text)):
        one = next((node for node in block if _holds(node, first, text)), None)
        if one is None:
            continue
        rest = block[block.index(one) + 1 :]
        other = next((node for node in rest if _holds(node, second, text)), None)
        if other is not None:
            return one, other
    return None


def _holds(statement: ast.stmt, pattern: str, text: str) -> bool:
    wanted = _parsed(pattern)
    return any(_match(wanted, node, text) is not None for node in ast.walk(statement))


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _nodes(tree: ast.AST, within: type[ast.AST] | None) -> Iterator[ast.AST]:
    if within is None:
        yield from ast.walk(tree)
        return
    seen = set[ast.AST]()
    for outer in ast.walk(tree):
        if isinstance(outer, within):
            inner = [node for node in ast.walk(outer) if node is not outer and node not in seen]
            seen.update(inner)
            yield from inner


def _parsed(pattern: str) -> ast.AST:
    statement = ast.parse(pattern).body[0]
    return statement.value if isinstance(statement, ast.Expr) else statement


def _filled(template: str, found: Found) -> str:
    """`template`, of one line, with what the letters stand for."""
    nodes = [node for node in ast.walk(ast.parse(template)) if _letter(node) in found]
    for node in sorted(nodes, key=lambda node: node.col_offset, reverse=True):  # type: ignore[attr-defined]
        (start, end), new = _span(template, node), found[_letter(node)]
        head = template[:start]
        if not new:  # no argument is left: the comma in front goes too
            head = head.rstrip().removesuffix(",")
        template = head + new + template[end:]
    return template


def _letter(node: Any) -> str:
    """What a node stands for, if it does."""
    if isinstance(node, ast.keyword):
        return REST if node.arg is None and isinstance(node.value, ast.Name) and node.value.id == REST else "-"
    return node.id if isinstance(node, ast.Name) and len(node.id) == 1 and node.id.isupper() else "-"


def _span(text: str, node: Any) -> tuple[int, int]:
    lines = text.encode().splitlines(keepends=True)
    starts = [sum(map(len, lines[: n - 1])) for n in (node.lineno, node.end_lineno)]
    ends = (starts[0] + node.col_offset, starts[1] + node.end_col_offset)
    return len(text.encode()[: ends[0]].decode()), len(text.encode()[: ends[1]].decode())


def _match(wanted: Any, node: Any, text: str) -> Found | None:
    """What the letters stand for; None where the pattern does not fit. Never empty, so that it is true."""
    found: Found = {"": ""}
    return found if _fits(wanted, node, text, found) else None


def _fits(wanted: Any, node: Any, text: str, found: Found) -> bool:
    if _letter(wanted) != "-" and isinstance(node, ast.expr):
        source = ast.get_source_segment(text, node) or ""
        return found.setdefault(_letter(wanted), source) == source
    if type(wanted) is not type(node):
        return False
    if isinstance(wanted, ast.Call):
        return _call_fits(wanted, node, text, found)
    if isinstance(wanted, list):
        return len(wanted) == len(node) and all(_fits(a, b, text, found) for a, b in zip(wanted, node, strict=True))
    if isinstance(wanted, ast.AST):
        return all(
            _fits(getattr(wanted, field, None), getattr(node, field, None), text, found)
            for field in wanted._fields
            if field != "ctx"
        )
    return bool(wanted == node)


def _call_fits(wanted: ast.Call, node: ast.Call, text: str, found: Found) -> bool:
    """Keywords are found in any order; `REST` takes what the pattern does not name."""
    args, open_ended = wanted.args, any(_letter(keyword) == REST for keyword in wanted.keywords)
    if not _fits(wanted.func, node.func, text, found) or len(node.args) < len(args):
        return False
    given = {keyword.arg: keyword for keyword in node.keywords if keyword.arg}
    named = {keyword.arg: keyword for keyword in wanted.keywords if keyword.arg}
    if not named.keys() <= given.keys():
        return False
    left: list[ast.AST] = [*node.args[len(args) :], *(k for k in node.keywords if k.arg not in named)]
    if left and not open_ended:
        return False
    if open_ended:
        found[REST] = ", ".join(ast.get_source_segment(text, part) or "" for part in left)
    pairs = [*zip(args, node.args, strict=False), *((named[name].value, given[name].value) for name in named)]
    return all(_fits(a, b, text, found) for a, b in pairs)
