"""What a call gives for each parameter of what it calls."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst


def by_parameter(arguments: Sequence[cst.Arg], parameters: Sequence[str]) -> dict[str, cst.Arg] | None:
    """None where that is not seen: of `*args` and `**kwargs`, and where there are more than parameters."""
    found = {}
    for index, argument in enumerate(arguments):
        if argument.star or (argument.keyword is None and index >= len(parameters)):
            return None
        found[argument.keyword.value if argument.keyword is not None else parameters[index]] = argument
    return found
