"""How deeply a text is nested, asked before LibCST's parser would run out of stack and end the process."""

from __future__ import annotations

import ast
import warnings

_SAFE = 1000
"""Levels that LibCST's parser takes in a few milliseconds; ten thousand end the process, or take minutes."""


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
    _walk(tree)
    return tree


def _walk(tree: ast.Module) -> None:
    stack: list[tuple[ast.AST, int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > _SAFE:
            raise TooDeep
        if isinstance(node, ast.expr) and _is_short(node):
            continue
        # What Python keeps as one list is a chain to LibCST.
        depth += len(node.values) if isinstance(node, ast.BoolOp) else 1
        stack.extend((child, depth) for child in ast.iter_child_nodes(node))


def _is_short(node: ast.expr) -> bool:
    """Whether an expression has fewer characters than levels are allowed."""
    return node.end_lineno == node.lineno and (node.end_col_offset or 0) - node.col_offset < _SAFE
