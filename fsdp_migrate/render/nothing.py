"""The sentences for a run that found nothing. On their own, because a tree without FSDP is answered without LibCST."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path


class Remains(Enum):
    """What the files speak of when nothing was found in them."""

    NOTHING = "no FSDP at all"
    FSDP2 = "FSDP2 already"
    FSDP1 = "FSDP1, in words or outside the selected rules"


def nothing_found(files: int, remains: Remains = Remains.NOTHING, mention: str = "", errors: int = 0) -> str:
    """What "nothing" means here; `mention` is `file:line` where FSDP1 is still named.

    Empty when none of the files could be read: then nothing is known of them.
    """
    if errors and errors >= files:
        return ""
    head = f"Found 0 FSDP1 constructs in {files} Python {'file' if files == 1 else 'files'}"
    if remains is Remains.FSDP2:
        return f"{head}: this is FSDP2 already."
    if remains is Remains.FSDP1:
        return f"{head}, but FSDP1 is still named in them{f' ({mention})' if mention else ''}."
    return f"{head}: there is no FSDP here."


def not_done(errors: int) -> str:
    """How many files were left out of a run; empty for none."""
    return f"{errors} {'file' if errors == 1 else 'files'} could not be read or written." if errors else ""


def shown(path: Path, folder: Path) -> str:
    """A path as the user would type it: relative inside the current folder, absolute elsewhere."""
    relative = os.path.relpath(path, folder)
    return str(path) if relative.startswith("..") else relative
