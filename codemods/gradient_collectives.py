"""Finds functions that put gradients, or their norms, through a collective by hand.

Under FSDP1 a gradient is this rank's flat shard, and such code adds the shards up. An FSDP2 gradient is a DTensor:
a norm of it can be global already, and adding it up over the ranks again makes it larger by the square root of
their number (4.73994970 became 6.703302 on 2 ranks, measured on torch 2.13). Some forms stay right, some raise,
some are silently wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.tables.leftovers import COLLECTIVE
from codemods.vocabulary import File, Finding, Level, finding

_COLLECTIVES = frozenset({"all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor"})


def findings(file: File, attributes: list[cst.Attribute]) -> Iterator[Finding]:
    """One finding for each function that reads `.grad` and calls a collective of torch.distributed."""
    with_gradients = {file.scope(node) for node in attributes if node.attr.value == "grad"}
    for scope in with_gradients:
        if not isinstance(scope, cst.FunctionDef):
            continue
        for call in file.calls(scope):
            if (file.dotted(call.func) or "").startswith("torch.distributed.") and _last(call) in _COLLECTIVES:
                yield finding(COLLECTIVE.code, Level.MANUAL, file, call, COLLECTIVE.message, COLLECTIVE.cure)
                break


def _last(call: cst.Call) -> str:
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else cst.ensure_type(call.func, cst.Name).value
