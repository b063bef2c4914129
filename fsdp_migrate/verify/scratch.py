"""A copy of a program's tree for one run, so that what it writes beside itself does not touch the user's files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_NOT_NEEDED = frozenset(
    {".git", ".hg", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", ".ruff_cache", ".pytest_cache", "wandb"}
)
COPY_LIMIT_BYTES = 256 * 2**20
"""Files are copied up to this many bytes in all; what is beyond (data sets, checkpoints) is linked to, and reported."""


def copy_tree(source: Path, target: Path, limit: int = COPY_LIMIT_BYTES) -> list[Path]:
    """Copy `source` into the new directory `target`, small files first.

    Returns the files that were linked to because the limit was reached: a program that overwrites one of those
    overwrites the user's file.
    """
    for folder in _folders_of(source):
        (target / folder.relative_to(source)).mkdir(parents=True, exist_ok=True)
    linked: list[Path] = []
    spent = 0
    for size, path in files_of(source):
        spent += size
        place = target / path.relative_to(source)
        if spent <= limit:
            shutil.copy2(path, place)
        else:
            place.symlink_to(path.resolve())
            linked.append(path)
    return linked


def files_of(source: Path) -> list[tuple[int, Path]]:
    """(size, path) of each file that a run may need, smallest first."""
    paths = [path for folder in _folders_of(source) for path in folder.iterdir() if path.is_file()]
    return sorted((path.stat().st_size, path) for path in paths)


def _folders_of(source: Path) -> list[Path]:
    found = []
    for folder, subfolders, _ in os.walk(source):
        subfolders[:] = [name for name in subfolders if name not in _NOT_NEEDED]
        found.append(Path(folder))
    return found
