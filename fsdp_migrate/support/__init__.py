"""The functions that can go into a user's `fsdp2_support.py`, and how that file is written."""

from pathlib import Path

from codemods.api import SUPPORT as NAME
from fsdp_migrate.support.compose import WIDTHS, compose, imports_of, joined, parse, unannotated, unserved, update
from fsdp_migrate.support.cut import MARKS, TYPES, Asked, asked_by, cut, everything
from fsdp_migrate.support.layout import fitted, one_line
from fsdp_migrate.support.library import available
from fsdp_migrate.support.line_breaks import broken
from fsdp_migrate.support.signatures import misfits

__all__ = [
    "MARKS",
    "NAME",
    "TYPES",
    "WIDTHS",
    "Asked",
    "asked_by",
    "available",
    "broken",
    "compose",
    "cut",
    "everything",
    "fitted",
    "imports_of",
    "is_support_file",
    "joined",
    "misfits",
    "one_line",
    "parse",
    "unannotated",
    "unserved",
    "update",
]


def is_support_file(path: Path) -> bool:
    return path.name == f"{NAME}.py"
