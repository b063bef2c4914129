"""Reports files that the program opens outside its scratch copy: what it writes there is not protected, and what it
reads there may be what an earlier run of the same check has written."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from fsdp_migrate.probe.writer import RecordWriter

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CACHES = ("/dev/", "/proc/", "/sys/")
_MOST = 200
WRITTEN_BEFORE = "written-before.json"
"""Beside the records: what earlier runs have written outside, a JSON list of paths."""


class Outside:
    """Writes one `outside` record for each path that is written to, and one `read_back` for each that an earlier run
    wrote and this one reads. Cache directories do not count; `temporary` are paths that nobody keeps."""

    def __init__(self, scratch: Path, out: Path, writer: RecordWriter) -> None:
        self._writer = writer
        self._inside = (
            *(str(Path(root).resolve()) + os.sep for root in (scratch, out, Path.home() / ".cache")),
            *_CACHES,
        )
        self._temporary = str(Path(tempfile.gettempdir()).resolve()) + os.sep
        before = out / WRITTEN_BEFORE
        self._before = frozenset(json.loads(before.read_text())) if before.is_file() else frozenset()
        self._seen: set[str] = set()

    def install(self) -> None:
        sys.addaudithook(self._hear)

    def wrote(self, path: str) -> None:
        """Also called for what is written without Python's `open`, as `torch.save` does."""
        full = os.path.abspath(path)
        if len(self._seen) < _MOST and full not in self._seen and not full.endswith(".pyc"):
            if not full.startswith(self._inside):
                self._seen.add(full)
                self._writer.write("outside", path=full, temporary=full.startswith(self._temporary))

    def _hear(self, event: str, args: tuple[object, ...]) -> None:
        if event != "open":
            return
        path, _, flags = args
        if not isinstance(path, (str, os.PathLike)) or not isinstance(flags, int):
            return
        if flags & _WRITE_FLAGS:
            self.wrote(os.fspath(path))
        elif self._before and (full := os.path.abspath(os.fspath(path))) in self._before and full not in self._seen:
            self._before -= {full}
            self._writer.write("read_back", path=full)
