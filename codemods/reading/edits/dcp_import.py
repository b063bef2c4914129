"""The name that a file has for `torch.distributed.checkpoint`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Import

PACKAGES = ("torch.distributed.checkpoint", "torch.distributed._shard.checkpoint")
"""The second is torch's old name for the first."""


def dcp_import(ctx: Context, at: cst.CSTNode) -> Import:
    """The import to call `save` and `load` by at a place: one that the file has, or `dcp`."""
    own = (item for item in _of_file(ctx) if ctx.named(item, at) == item)
    return next(own, None) or ctx.named(Import(PACKAGES[0], "", "dcp"), at)


def _of_file(ctx: Context) -> Iterator[Import]:
    for alias in ctx.nodes(cst.ImportAlias):
        statement, name = ctx.parent(alias), ctx.code(alias.name)
        if ctx.scope(alias) is not ctx.top:
            continue
        local = alias.evaluated_alias or ""
        if isinstance(statement, cst.Import) and name in PACKAGES and local:
            yield Import(name, "", local)
        elif isinstance(statement, cst.ImportFrom) and statement.module is not None:
            module = ctx.code(statement.module)
            if f"{module}.{name}" in PACKAGES:
                yield Import(module, name, local)
