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


def tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """Up to where it is no Python, as a piece of code need not be."""
    try:
        yield from tokenize.generate_tokens(io.StringIO(text).readline)
    except (tokenize.TokenError, SyntaxError):
        return
