"""The original's runs of an earlier check, by content: while the original and how it is run stay as they were, a second
check of a changed rewrite has to run the rewritten program only."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fsdp_migrate.verify.launch import redirects
from fsdp_migrate.verify.records import SCHEMA, RankRecords, read_run
from fsdp_migrate.verify.request import CheckRequest
from fsdp_migrate.verify.scratch import COPY_LIMIT_BYTES, files_of

_MOST = 16
"""Originals that are kept; the one that was used longest ago goes first."""
_PASSING = frozenset(
    {"_", "PWD", "OLDPWD", "SHLVL", "TERM", "COLUMNS", "LINES", "PYTEST_CURRENT_TEST", "PYTEST_VERSION"}
)
"""Variables that change without any meaning for a program."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The folder of one original."""

    place: Path

    def records(self, run: str) -> list[RankRecords] | None:
        """Of the run of that name; None when there are none."""
        try:
            found = read_run(self.place / run)
        except (OSError, ValueError):
            return None
        return found if found and all(rank.end for rank in found) else None

    def keep(self, run: str, records: Path) -> None:
        """A cache that cannot be written is none."""
        try:
            shutil.rmtree(self.place / run, ignore_errors=True)
            (self.place / run).mkdir(parents=True)
            for path in records.glob("rank-*.jsonl"):
                shutil.copy2(path, self.place / run)
            _forget_oldest(self.place.parent)
        except OSError:
            shutil.rmtree(self.place / run, ignore_errors=True)

    @property
    def date(self) -> str:
        """When it was made."""
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(self.place.stat().st_mtime))


def kept_runs(request: CheckRequest, torch: str | None) -> Kept | None:
    """Where the original's runs of this request are kept; None where they must be made anew: what lies in a checkpoint,
    or on another machine, is not kept."""
    alone = request.nodes == 1 and request.launcher is None and request.dry_run_world is None
    if not request.reuse or not alone or request.resume_args is not None or request.keep_files:
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fsdp-migrate" / "originals"
    return Kept(home / _key(request, torch))


def _key(request: CheckRequest, torch: str | None) -> str:
    """Of the tree's contents, the command, the environment, and of this program's own probe."""
    environment = {name: value for name, value in os.environ.items() if name not in _PASSING} | dict(request.env)
    how = (
        *(request.target("original"), str(request.cwd), request.as_module, request.args, request.world_size),
        *(request.device, request.steps, request.seed, request.python, redirects(request), request.torchrun_args),
        *(torch, SCHEMA, sorted(environment.items()), _installed(request.python)),
    )
    digest = hashlib.sha256(json.dumps(how).encode())
    probe = Path(__file__).parents[1] / "probe"
    for name, content in (*_contents(request.tree("original")), *_contents(probe)):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:32]


def _installed(python: str) -> list[int]:
    """Moves on when a package is installed, changed or removed."""
    home = Path(python).parent.parent
    return [folder.stat().st_mtime_ns for folder in sorted(home.glob("lib*/python3*/site-packages"))]


def _contents(root: Path) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each file, smallest first; of what is too large to be copied, size and time of change."""
    spent = 0
    for size, path in files_of(root):
        spent += size
        name = str(path.relative_to(root))
        yield name, path.read_bytes() if spent <= COPY_LIMIT_BYTES else f"{size} {path.stat().st_mtime_ns}".encode()


def _forget_oldest(home: Path) -> None:
    kept = sorted(home.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in kept[:-_MOST]:
        shutil.rmtree(path, ignore_errors=True)
