"""What a run saved: one entry a file, those of torch.distributed.checkpoint put together from all ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fsdp_migrate.verify.records import RankRecords, Record
from fsdp_migrate.verify.sketches import Sketch

DCP = "dcp"


@dataclass(frozen=True, slots=True)
class Leaf:
    """What stands under one key. `sketch` is None where no fingerprint could be made, `value` for a plain one."""

    kind: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    sketch: Sketch | None = None
    value: Any = None


@dataclass(frozen=True, slots=True)
class SavedFile:
    """One call that saved something. `rank` is who called it, None where all ranks write one checkpoint together;
    `again` counts the calls before it with the same path. `problem` says why it could not be looked at."""

    format: str
    path: str
    rank: int | None
    again: int
    step: int
    leaves: Mapping[str, Leaf] = field(default_factory=dict)
    problem: str = ""

    @property
    def name(self) -> str:
        by = "" if self.rank is None else f" of rank {self.rank}"
        return f"{self.path}{by} at step {self.step}"


def saved_files(ranks: list[RankRecords]) -> tuple[SavedFile, ...]:
    """In the order in which they were saved."""
    found: dict[tuple[str, str, int | None, int], list[Record]] = {}
    for rank in ranks:
        times: dict[tuple[str, str], int] = {}
        for record in rank.of("file"):
            form, path = record["format"], record["path"]
            again = times[form, path] = times.get((form, path), -1) + 1
            found.setdefault((form, path, None if form == DCP else rank.rank, again), []).append(record)
    files = [
        SavedFile(form, path, rank, again, parts[0]["step"], _leaves(parts), next(filter(None, _problems(parts)), ""))
        for (form, path, rank, again), parts in found.items()
    ]
    return tuple(sorted(map(_by_name, files), key=lambda file: file.step))


def _problems(parts: list[Record]) -> list[str]:
    return [str(part["problem"]) for part in parts]


def _leaves(parts: list[Record]) -> dict[str, Leaf]:
    merged: dict[str, Leaf] = {}
    for part in parts:
        for entry in part["entries"]:
            known = merged.get(entry["key"])
            if known is None:
                known = merged[entry["key"]] = _leaf(entry)
            elif entry["kind"] == "tensor":
                continue  # every rank has the whole of it
            for piece in entry.get("parts", ()):
                assert known.sketch is not None
                known.sketch.add(piece, 1.0 / entry["rep"])
    return merged


def _leaf(entry: Record) -> Leaf:
    sketch = Sketch([0.0] * 16, numel=entry["N"]) if "N" in entry else None
    return Leaf(entry["kind"], tuple(entry.get("shape", ())), entry.get("dtype", ""), sketch, entry.get("value"))


_NAMED = re.compile(r"(?P<optimizer>(?:.*\.)?)param_groups\.\d+\.params\.\d+")


def _by_name(file: SavedFile) -> SavedFile:
    """The same file, with an optimizer's state in alphabetical order where parameter names are its keys. Whoever loads
    it goes by the names; FSDP1 had them in an order of its units, which means nothing elsewhere.
    """
    groups: dict[str, list[str]] = {}
    optimizers: set[str] = set()
    for key, leaf in file.leaves.items():
        if (found := _NAMED.fullmatch(key)) and isinstance(leaf.value, str):
            groups.setdefault(key.rpartition(".")[0], []).append(key)
            optimizers.add(f"{found['optimizer']}state.")
    leaves = dict(file.leaves)
    for keys in groups.values():
        names = sorted((file.leaves[key] for key in keys), key=lambda leaf: str(leaf.value))
        leaves.update(zip(keys, names, strict=True))
    state = sorted(key for key in leaves if key.startswith(tuple(optimizers)))
    for key in state:
        leaves[key] = leaves.pop(key)
    return replace(file, leaves=leaves)
