"""Two support functions of one program where one of them serves for both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import libcst as cst

from codemods.api import SUPPORT, Import

from ..pyanalysis.program import Program
from .pending import Pending

SERVES = {"whole_state_dict": "full_state_dict"}
"""What a program does not need beside the other: with the model alone, both give the same."""


def with_one(program: Program, wanted: Mapping[Path, Pending]) -> dict[Path, Pending]:
    """What is wanted of the files of a program, with one function in the place of two."""
    found = dict(wanted)
    for lesser, other in SERVES.items():
        mine, others = _asking(lesser, wanted), _asking(other, wanted)
        # A function for one file alone can stand in it.
        if others and (len(others) > 1 or len(mine) > 1 or mine <= others):
            found |= {path: _exchanged(program, path, found[path], Import(SUPPORT, lesser), other) for path in mine}
    return found


def _asking(name: str, wanted: Mapping[Path, Pending]) -> set[Path]:
    return {path for path, each in wanted.items() if (SUPPORT, name) in {(i.module, i.name) for i in each.imports}}


def _exchanged(program: Program, path: Path, wanted: Pending, item: Import, other: str) -> Pending:
    there = next((each for each in wanted.imports if (each.module, each.name) == (SUPPORT, other)), None)
    tree = program.tree(path)
    is_free = there is not None or (tree is not None and all(name.value != other for name in tree.nodes(cst.Name)))
    if item not in wanted.imports or not is_free:
        return wanted  # the file means something else by one of the names
    there = there or Import(SUPPORT, other)
    called = re.compile(rf"(?<![\w.]){item.local}(?=\()")
    edits = {replace(edit, text=called.sub(there.local, edit.text)): rule for edit, rule in wanted.edits.items()}
    return replace(wanted, edits=edits, imports={*wanted.imports - {item}, there})
