"""Recordings that are no pair are refused, with what to do; and how the processes of several nodes are started."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fsdp_migrate.verify import CheckRequest, Failure, Recording, Verdict, compare, record
from fsdp_migrate.verify.launch import Run, command
from fsdp_migrate.verify.preflight import Machine, objection
from fsdp_migrate.verify.records import SCHEMA

BEFORE = Recording("original", ("run", "floor-1"), 2, 6, 6, "cpu", None, ())
AFTER = replace(BEFORE, side="rewritten", runs=("run",))
NODES = CheckRequest(Path("a.py"), Path("a.py"), 8, device="cuda", nodes=2, keep=Path("kept"))
MACHINE = Machine("2.13.0", 8, True)


def put(folder: Path, recording: Recording) -> Path:
    folder.mkdir()
    (folder / "recording.json").write_text(json.dumps(asdict(recording)))
    return folder


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (AFTER, AFTER, "is a recording of the rewritten program, not of the original one"),
        (BEFORE, replace(AFTER, ranks=4), "differ in ranks: 2 of the original, 4 of"),
        (BEFORE, replace(AFTER, wanted=9), "differ in --steps: 6 of the original, 9 of"),
        (BEFORE, replace(AFTER, seed=1), "differ in --seed: None of the original, 1 of"),
        (BEFORE, replace(AFTER, device="cuda"), "differ in the device: cpu of the original, cuda of"),
        (replace(BEFORE, schema=0), AFTER, f"schema 0, this version reads {SCHEMA}"),
        (BEFORE, AFTER, "lacks the records of its run"),
    ],
)
def test_what_is_no_pair(tmp_path: Path, before: Recording, after: Recording, message: str) -> None:
    report = compare(put(tmp_path / "before", before), put(tmp_path / "after", after))
    assert report.verdict is Verdict.COULD_NOT_RUN
    assert report.exit_code == 2
    assert message in report.reason
    assert report.failure is not None
    assert report.failure.hint


def test_a_folder_without_a_recording(tmp_path: Path) -> None:
    assert "holds no finished recording" in compare(tmp_path, tmp_path).reason
    (tmp_path / "recording.json").write_text(f'{{"schema": {SCHEMA}, "side": "original"}}')
    assert "holds no finished recording" in compare(tmp_path, tmp_path).reason


def test_weights_that_were_not_kept_are_said_before_anything_runs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    failure = record(CheckRequest(script, script, 1), tmp_path / "after", init_from=put(tmp_path / "before", BEFORE))
    assert isinstance(failure, Failure)
    assert "--save-init" in failure.hint


def test_nodes_meet_at_an_id_for_each_run() -> None:
    request = replace(NODES, node_rank=1, rdzv_endpoint="head:29400", torchrun_args=("--max-restarts", "0"))
    line = command(request, Run("original", "floor 1", Path("out"), Path("scratch"), perturb=1))
    words = line[line.index("torch.distributed.run") + 1 : line.index("fsdp_migrate.probe") - 1]
    assert words == [
        *("--nnodes", "2", "--rdzv-id", "fsdp-migrate-floor-1", "--node-rank", "1"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "head:29400"),
        *("--max-restarts", "0", "--nproc-per-node", "8"),
    ]


@pytest.mark.parametrize(
    ("given", "standalone"),
    [
        ((), True),
        (("--max-restarts", "0"), True),
        (("--master-port", "29501"), False),
        (("--rdzv_endpoint=h:1",), False),
    ],
)
def test_one_node_stands_alone_unless_told_otherwise(given: tuple[str, ...], standalone: bool) -> None:
    line = command(replace(NODES, nodes=1, torchrun_args=given), Run("original", "original", Path("o"), Path("s")))
    assert ("--standalone" in line) is standalone
    assert [word for word in line if word in given] == list(given)


def test_nodes_need_a_folder_that_they_share() -> None:
    assert objection(NODES, MACHINE) is None
    failure = objection(replace(NODES, keep=None), MACHINE)
    assert failure is not None
    assert "--keep DIR" in failure.hint
    assert objection(replace(NODES, keep=None, launcher="srun {probe}"), MACHINE) is None
    spawning = objection(replace(NODES, spawns="yes"), MACHINE)
    assert spawning is not None
    assert "starts its own processes" in spawning.message
