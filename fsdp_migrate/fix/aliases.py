"""`FSDP = FullyShardedDataParallel` goes when nothing of its uses is left."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods.api import Context, Fix, Reference
from codemods.reading.code.words import last_name
from codemods.reading.edits.layout import removal

from .collect import Collected, is_left


def unused_aliases(file: Context, made: Collected) -> Iterator[Fix]:
    """One fix after the other: an alias can be all that uses another one."""
    named = [node for node, _ in file.references() if isinstance(file.parent(node), cst.Assign)]
    while named:
        lines = [line for node in named if (line := _line_of_unused(file, node, made)) is not None]
        if not lines:
            return
        yield Fix(edits=[removal(file, lines[0])])


def _line_of_unused(file: Context, node: Reference, made: Collected) -> cst.CSTNode | None:
    assignment = file.parent(node)
    target = assignment.targets[0].target if isinstance(assignment, cst.Assign) else None
    if assignment is None or not isinstance(target, cst.Name) or file.fsdp1(target) is None:
        return None
    if not is_left(file, node, made.rendered(file)):
        return None
    uses: list[tuple[Context, Reference]] = [(file, use) for use in file.uses(assignment)]
    others = (where for where in file.files(target.value) if where.path != file.path)
    uses += [use for where in others for use in _named(where, target.value)]
    if not uses or any(is_left(where, use, made.rendered(where)) for where, use in uses):
        return None
    return file.parent(assignment)


def _named(file: Context, name: str) -> Iterator[tuple[Context, Reference]]:
    """Where another file names FSDP1 in this way, or by a name that it imports it under."""
    taken = [alias for alias in file.nodes(cst.ImportAlias) if last_name(alias.name) == name]
    names = {name, *(last_name(alias.asname.name) for alias in taken if alias.asname is not None)}
    yield from ((file, node) for node, _ in file.references() if last_name(node) in names)
