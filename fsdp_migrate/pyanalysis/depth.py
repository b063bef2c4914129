"""How deeply a text is nested, asked before LibCST's parser would run out of stack and end the process."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from itertools import accumulate

_SAFE = 1000
"""Levels that LibCST's parser takes in a few milliseconds; ten thousand end the process, or take minutes."""
_SIMPLE = (ast.expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert, ast.Raise, ast.Delete)


class TooDeep(Exception):
    """A text that is nested more deeply than can be followed: no person wrote it."""


def parse_safely(text: str) -> ast.Module | None:
    """The tree of `ast`; None when it is not Python to it. Raises `TooDeep` for a text that is not safe to follow."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError as error:
        if "too many nested" in str(error.msg):
            raise TooDeep from None
        return None
    except ValueError:
        return None  # null bytes, or half a surrogate pair: LibCST says where
    except (RecursionError, MemoryError):
        raise TooDeep from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")  # as Python counts them
    _walk(tree, [0, *accumulate(map(len, lines))])
    return tree


def _walk(tree: ast.Module, starts: Sequence[int]) -> None:
    """`starts` are the characters before each line, newlines not counted."""
    stack: list[tuple[ast.AST, int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > _SAFE:
            raise TooDeep
        if isinstance(node, _SIMPLE) and starts[node.end_lineno or 0] - starts[node.lineno - 1] < _SAFE:
            continue  # it has fewer characters than levels are allowed
        # What Python keeps as one list is a chain to LibCST.
        depth += len(node.values) if isinstance(node, ast.BoolOp) else 1
        stack.extend((child, depth) for child in ast.iter_child_nodes(node))
