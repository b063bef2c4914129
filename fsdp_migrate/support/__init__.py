"""The functions that can go into a user's `fsdp2_support.py`, and how that file is written."""

from pathlib import Path

from codemods.api import SUPPORT as NAME
from fsdp_migrate.support.compose import available, compose, edited, imports_of, needed, parse, update

__all__ = ["NAME", "available", "compose", "edited", "imports_of", "is_support_file", "needed", "parse", "update"]


def is_support_file(path: Path) -> bool:
    return path.name == f"{NAME}.py"
