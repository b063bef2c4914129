"""Python's own tree of a text, where LibCST's is not needed."""

from __future__ import annotations

import ast
import warnings


def parsed(text: str) -> ast.Module | None:
    """None for a text that is not Python; what Python warns of is the user's to see elsewhere."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
