"""`FSDP = FullyShardedDataParallel` goes when nothing of its uses is left."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Fix, Reference
from codemods.reading.layout import removal

from ..edit.apply import Rendered
from .collect import Collected, is_left


def unused_aliases(file: Context, made: Collected) -> Iterator[Fix]:
    """One fix after the other: an alias can be all that uses another one."""
    named = [node for node, _ in file.references() if isinstance(file.parent(node), cst.Assign)]
    while named:
        rendered = made.rendered(file)
        lines = [line for node in named if (line := _line_of_unused(file, node, rendered)) is not None]
        if not lines:
            return
        yield Fix(edits=[removal(file, lines[0])])


def _line_of_unused(file: Context, node: Reference, rendered: Rendered) -> cst.CSTNode | None:
    assignment = file.parent(node)
    target = assignment.targets[0].target if isinstance(assignment, cst.Assign) else None
    if assignment is None or not isinstance(target, cst.Name) or file.fsdp1(target) is None:
        return None
    if file.mentions_elsewhere(target.value) or not is_left(file, node, rendered):
        return None
    uses = file.uses(assignment)
    if not uses or any(is_left(file, use, rendered) for use in uses):
        return None
    return file.parent(assignment)
