"""Where a program saves and loads through `torch.distributed.checkpoint`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import SUPPORT, Context
from codemods.reading.dcp_import import PACKAGES

_SAVES = frozenset({"save", "state_dict_saver.save"})
_READS = frozenset(
    {
        *("load", "state_dict_loader.load", "load_state_dict", "state_dict_loader.load_state_dict"),
        *("load_sharded_optimizer_state_dict", "optimizer.load_sharded_optimizer_state_dict"),
        "format_utils.dcp_to_torch_save",
    }
)


_READ_BY_SUPPORT = ("load_dcp", "read_sharded")
READ_WORDS = ("checkpoint", *_READ_BY_SUPPORT)
"""Identifiers: a file that reads a checkpoint holds one of them."""


def dcp_saves(ctx: Context) -> list[cst.Call]:
    """The calls of `save` in a file."""
    return list(_calls(ctx, _SAVES))


def dcp_reads(ctx: Context) -> list[cst.Call]:
    """The calls in a file that read a checkpoint, those of the support module among them."""
    own = (f"{SUPPORT}.{name}" for name in _READ_BY_SUPPORT)
    through_support = tuple(each for name in own for each in (name, f".{name}"))
    return [
        *_calls(ctx, _READS),
        *(call for call in ctx.nodes(cst.Call) if (ctx.dotted(call.func) or "").endswith(through_support)),
    ]


def _calls(ctx: Context, names: frozenset[str]) -> Iterator[cst.Call]:
    for call in ctx.nodes(cst.Call):
        dotted = ctx.dotted(call.func) or ""
        if any(dotted == f"{package}.{name}" for package in PACKAGES for name in names):
            yield call
