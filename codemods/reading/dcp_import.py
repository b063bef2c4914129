"""The name that a file has for `torch.distributed.checkpoint`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.vocabulary import File, Import

PACKAGES = ("torch.distributed.checkpoint", "torch.distributed._shard.checkpoint")
"""The second is torch's old name for the first."""


def dcp_import(file: File, at: cst.CSTNode) -> Import:
    """The import to call `save` and `load` by at a place: one that the file has, or `dcp`."""
    own = (item for item in _of_file(file) if file.named(item, at) == item)
    return next(own, None) or file.named(Import(PACKAGES[0], "", "dcp"), at)


def _of_file(file: File) -> Iterator[Import]:
    for alias in file.nodes(cst.ImportAlias):
        statement, name = file.parent(alias), file.code(alias.name)
        if file.scope(alias) is not file.top:
            continue
        local = alias.evaluated_alias or ""
        if isinstance(statement, cst.Import) and name in PACKAGES and local:
            yield Import(name, "", local)
        elif isinstance(statement, cst.ImportFrom) and statement.module is not None:
            module = file.code(statement.module)
            if f"{module}.{name}" in PACKAGES:
                yield Import(module, name, local)
