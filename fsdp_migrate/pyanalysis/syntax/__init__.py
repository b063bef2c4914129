"""From text to LibCST's nodes by way of `ast`: a fifth of the time of LibCST's own parser and its position pass.

The nodes hold the syntax. Their layout fields (white space, brackets) hold LibCST's defaults: edits are made on the
text, which has the layout, and `Places` tells where in it each node stands. Parentheses around expressions, commas
behind arguments and the comments above the first statement are there.
"""

from __future__ import annotations

import libcst as cst

from fsdp_migrate.pyanalysis.depth import parse_safely

from .annotated import AnnotatedAssign
from .places import Known, Measured, Places
from .statements import Statements
from .unknown import Unknown

__all__ = ["AnnotatedAssign", "Places", "parse"]


def parse(text: str) -> tuple[cst.Module, Places]:
    """The nodes of a text, and where they stand. Raises `libcst.ParserSyntaxError` and `TooDeep`.

    What `ast` does not know, because it is of another Python, LibCST parses itself; `match` too, and a text with
    lines that end in a return alone.
    """
    known = parse_safely(text)
    if known is not None:
        try:
            statements = Statements(text)
            return statements.module(known), Known(statements)
        except Unknown:
            pass
    module = cst.parse_module(text)
    places = Measured(module)
    places.convert()
    return module, places
