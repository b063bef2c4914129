"""Reports files that the program opens for writing outside its scratch copy: those are not protected."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from fsdp_migrate.probe.writer import RecordWriter

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CACHES = ("/dev/", "/proc/", "/sys/")


def report_outside_writes(scratch: Path, out: Path, writer: RecordWriter) -> None:
    """Write one `outside` record for each path, at most 20. Paths in temporary and cache directories do not count."""
    inside = tuple(
        str(Path(root).resolve()) + os.sep for root in (scratch, out, tempfile.gettempdir(), Path.home() / ".cache")
    )
    seen: set[str] = set()

    def hear(event: str, args: tuple[object, ...]) -> None:
        if event != "open" or len(seen) >= 20:
            return
        path, _, flags = args
        if not isinstance(path, str) or not isinstance(flags, int) or not flags & _WRITE_FLAGS:
            return
        full = os.path.abspath(path)
        if full in seen or full.endswith(".pyc") or full.startswith(inside + _CACHES):
            return
        seen.add(full)
        writer.write("outside", path=full)

    sys.addaudithook(hear)
