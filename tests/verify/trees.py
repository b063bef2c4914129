"""Trees of programs with their options, as a user would have them before and after a migration."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"


def make_tree(place: Path, **options: Any) -> Path:
    """A copy of all programs with `options` beside them."""
    shutil.copytree(PROGRAMS, place, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "options.json").write_text(json.dumps(options))
    return place


def processes_with(word: str) -> list[str]:
    """Command lines of the running processes that mention `word`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line:
            found.append(line)
    return found
