"""One JSONL file a rank, every line flushed, so that a killed process leaves all that it saw."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import IO

SCHEMA = 2
CANNOT_WRITE = 74
"""Exit code of a rank that cannot write its records (sysexits.h: EX_IOERR)."""


def record_path(directory: Path, rank: int) -> Path:
    return directory / f"rank-{rank:05d}.jsonl"


class RecordWriter:
    """Appends records. A record is a JSON object with `kind` and `t`, the wall clock in seconds since the epoch.

    The wall clock, and not a clock of the process, because the parent orders the failures of several ranks by it.
    """

    def __init__(self, directory: Path, rank: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = record_path(directory, rank).open("a", buffering=1, encoding="utf-8")

    def write(self, kind: str, **fields: object) -> None:
        """Append one record.

        A full disk ends the process at once: a run whose records are incomplete must not look like a finished one.
        """
        try:
            self._file.write(json.dumps({"kind": kind, "t": time.time(), **fields}) + "\n")
        except OSError as error:
            with contextlib.suppress(OSError):  # the output may lie on the same disk
                sys.stderr.write(f"fsdp-migrate probe: cannot write records: {error}\n")
                sys.stderr.flush()
            os._exit(CANNOT_WRITE)
