"""Python's own tree and tokens of a text, where LibCST's are not needed."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Iterator


def parsed(text: str) -> ast.Module | None:
    """None for a text that is not Python; what Python warns of is the user's to see elsewhere."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements, with those inside of others; of expressions, which are most of a tree, none is looked at."""
    stack: list[ast.AST] = [tree]
    for outer in stack:
        for block in _BLOCKS:
            found = getattr(outer, block, None)
            if isinstance(found, list):  # a lambda's body is an expression
                stack += found
    return iter(stack)


_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """Up to where it is no Python, as a piece of code need not be."""
    try:
        yield from tokenize.generate_tokens(io.StringIO(text).readline)
    except (tokenize.TokenError, SyntaxError):
        return
