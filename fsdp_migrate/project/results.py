"""What `check` found, kept on disk for the next run on the same files.

An entry is found by what was asked (paths, options, folder, the tool's own sources) and holds only as long as every
file it was made from has the same bytes, and every question to the file system the same answer. It lies in the user's
cache folder, as JSON; one that cannot be read, or is of another shape, is as good as none. Entries are replaced
whole, so that runs beside each other never see half of one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import probes

MOST = 200
"""Entries that are kept; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a run printed, and its exit code."""

    out: str
    err: str
    code: int


class Results:
    """The entry of one question."""

    def __init__(self, question: Sequence[object], found: Iterable[Path], digest: str) -> None:
        """`digest` is of the bytes of the files that were `found`; those they import are looked up in the entry."""
        self._found = [str(path) for path in found]
        self._digest = digest
        self._start = time.time_ns()
        asked = json.dumps([tool(), *question], default=str)
        self._file = cache_folder() / f"{hashlib.blake2b(asked.encode(), digest_size=16).hexdigest()}.json"

    def get(self) -> Answer | None:
        """The answer of an earlier run, if it would be the same now."""
        try:
            entry = json.loads(self._file.read_bytes())
            if entry["digest"] != self._digest or entry["found"] != self._found:
                return None
            if not all(_digest_of(path) == was for path, was in entry["files"].items()):
                return None
            if not probes.still_true(entry["answers"]):
                return None
            answer = entry["answer"]
            return Answer(str(answer["out"]), str(answer["err"]), int(answer["code"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def put(self, answer: Answer, files: Iterable[Path], answers: probes.Answers) -> None:
        """Keep an answer that was made from these files too. Not if one of all of them is just being written."""
        known = set(self._found)
        others = [str(path) for path in files if str(path) not in known]
        if not all(_is_older(path, self._start) for path in (*self._found, *others)):
            return
        entry = {
            "digest": self._digest,
            "found": self._found,
            "files": {path: _digest_of(path) for path in others},
            "answers": answers,
            "answer": {"out": answer.out, "err": answer.err, "code": answer.code},
        }
        with contextlib.suppress(OSError, ValueError):
            folder = self._file.parent
            folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(suffix=".tmp", dir=folder)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    json.dump(entry, stream)
                os.replace(name, self._file)
            except BaseException:
                os.unlink(name)
                raise
            _drop_oldest(folder)


def cache_folder() -> Path:
    """Where entries lie."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/.cache")
    return Path(base) / "fsdp-migrate"


def tool() -> list[object]:
    """What the answers depend on beside the question: this program's own sources, and the Python that runs them."""
    home = Path(__file__).parents[2]
    sources = [path for room in ("fsdp_migrate", "codemods") for path in _sources(home / room)]
    return [sys.version, *sources]


def _sources(folder: Path) -> list[object]:
    found: list[object] = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.name.endswith(".py"):
                status = entry.stat()
                found.append((entry.path, status.st_size, status.st_mtime_ns))
            elif entry.name != "__pycache__" and entry.is_dir():
                found.extend(_sources(Path(entry.path)))
    return found


def _digest_of(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.blake2b(file.read(), digest_size=16).hexdigest()
    except (OSError, ValueError):
        return "unreadable"


def _is_older(path: str, than: int) -> bool:
    try:
        return os.stat(path).st_mtime_ns < than
    except (OSError, ValueError):
        return True


def _drop_oldest(folder: Path) -> None:
    entries = [entry for entry in os.scandir(folder) if entry.name.endswith((".json", ".tmp"))]
    if len(entries) > MOST:
        entries.sort(key=lambda entry: entry.stat().st_mtime_ns)
        for entry in entries[: len(entries) - MOST]:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
