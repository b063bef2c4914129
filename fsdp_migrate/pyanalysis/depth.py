"""How deeply a text is nested, asked before LibCST's parser would run out of stack and end the process."""

from __future__ import annotations

import ast
import warnings

_SAFE = 1000
"""Levels that LibCST's parser takes in a few milliseconds; ten thousand end the process, or take minutes."""


class TooDeep(Exception):
    """A text that is nested more deeply than can be followed: no person wrote it."""


def check_depth(text: str) -> None:
    """Raise `TooDeep` for a text that LibCST's parser is not safe with. One that is not Python to `ast` passes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError as error:
        if "too many nested" in str(error.msg):
            raise TooDeep from None
    except ValueError:
        return  # null bytes, or half a surrogate pair: LibCST says where
    except (RecursionError, MemoryError):
        raise TooDeep from None
    else:
        _walk(tree)


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
