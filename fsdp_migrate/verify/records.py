"""Reads what the probe wrote: one JSONL file a rank."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = dict[str, Any]
SCHEMA = 2


class RecordsError(Exception):
    """The records cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class RankRecords:
    """All records of one rank, in order."""

    rank: int
    records: tuple[Record, ...]

    def of(self, kind: str) -> Iterator[Record]:
        return (record for record in self.records if record["kind"] == kind)

    def first(self, kind: str) -> Record | None:
        return next(self.of(kind), None)

    @property
    def end(self) -> Record | None:
        return self.first("end")

    @property
    def steps(self) -> int:
        return sum(1 for _ in self.of("step"))


def read_run(directory: Path) -> list[RankRecords]:
    """The ranks found in `directory`, by rank. Raises RecordsError if a file is of another version of the probe."""
    return [_read_rank(path) for path in sorted(directory.glob("rank-*.jsonl"))]


def _read_rank(path: Path) -> RankRecords:
    records: list[Record] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            break  # the line that was being written when the process died
    rank = int(path.stem.removeprefix("rank-"))
    schema = records[0].get("schema") if records else SCHEMA
    if schema != SCHEMA:
        raise RecordsError(
            f"{path}: records of schema {schema}, this version reads {SCHEMA}; record both sides with one version"
        )
    return RankRecords(rank, tuple(records))
