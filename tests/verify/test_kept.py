"""The original's records are used again while nothing about them has changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fsdp_migrate.verify import CheckRequest
from fsdp_migrate.verify.kept import Kept, kept_runs
from fsdp_migrate.verify.records import SCHEMA


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckRequest:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for side in ("before", "after"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "train.py").write_text(side)
    return CheckRequest(tmp_path / "before" / "train.py", tmp_path / "after" / "train.py", 2, reuse=True)


def place(request: CheckRequest, torch: str = "2.13") -> Path:
    kept = kept_runs(request, torch)
    assert kept is not None
    return kept.place


def test_only_what_the_original_does_counts(request_: CheckRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    here = place(request_)
    request_.rewritten.write_text("another rewrite")
    assert place(request_) == here
    assert place(replace(request_, allow=("S3",))) == here
    for other in (
        replace(request_, args=("--lr", "1")),
        replace(request_, steps=3),
        replace(request_, seed=1),
        replace(request_, world_size=4),
        replace(request_, env={"SIZE": "2"}),
    ):
        assert place(other) != here
    assert place(request_, "2.14") != here
    monkeypatch.setenv("SIZE", "3")
    assert place(request_) != here
    monkeypatch.delenv("SIZE")
    request_.original.write_text("another original")
    assert place(request_) != here


def test_what_is_not_all_in_the_records_is_made_anew(request_: CheckRequest) -> None:
    assert kept_runs(replace(request_, reuse=False), None) is None
    assert kept_runs(replace(request_, resume_args=("--resume",)), None) is None
    assert kept_runs(replace(request_, nodes=2), None) is None


def test_records_come_back_whole_or_not_at_all(tmp_path: Path) -> None:
    kept, records = Kept(tmp_path / "kept" / "key"), tmp_path / "records"
    records.mkdir()
    assert kept.records("original") is None
    meta, end = {"kind": "meta", "schema": SCHEMA}, {"kind": "end", "reason": "finished"}
    (records / "rank-00000.jsonl").write_text(json.dumps(meta) + "\n")
    kept.keep("original", records)
    assert kept.records("original") is None
    (records / "rank-00000.jsonl").write_text(f"{json.dumps(meta)}\n{json.dumps(end)}\n")
    kept.keep("original", records)
    found = kept.records("original")
    assert found is not None
    assert found[0].end == end
    assert kept.date
