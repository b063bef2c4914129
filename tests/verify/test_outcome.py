"""How records become an outcome, without any process; and where a resumed run fits into the whole one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.verify import CheckRow, Failure, Mark
from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.observation import Observation, merge
from fsdp_migrate.verify.outcome import outcome, worth_a_retry
from fsdp_migrate.verify.records import SCHEMA, RankRecords, RecordsError, read_run
from fsdp_migrate.verify.resume import held_against, judge, resumed_at
from fsdp_migrate.verify.saved import SavedFile
from fsdp_migrate.verify.thresholds import coarsest
from fsdp_migrate.verify.watch import Watched

META = {"kind": "meta", "schema": SCHEMA, "t": 0.0}
ABORTED = "  rank      : 1 (local_rank: 1)\n  exitcode  : -6 (pid: 7)\n"
DISK_FULL = "  rank      : 1 (local_rank: 1)\n  exitcode  : 74 (pid: 7)\n"


def rank(number: int, *records: dict[str, Any]) -> RankRecords:
    return RankRecords(number, (META, *({"t": 1.0, **record} for record in records)))


def ended(reason: str, **more: Any) -> dict[str, Any]:
    return {"kind": "end", "reason": reason, **more}


def watched(*ranks: RankRecords, log: str = "", returncode: int = 1) -> Watched:
    return Watched(returncode, list(ranks), None, {}, log)


def step(loss: float) -> dict[str, Any]:
    return {
        "kind": "step",
        "opt": 0,
        "losses": [loss],
        "norm_before": None,
        "norm_at_step": None,
        "carried": None,
        "hyper": None,
        "comm": {},
        "forwards": 1,
        "seconds": 0.1,
        "peak_bytes": None,
    }


def run(*losses: float) -> Observation:
    return merge([rank(0, *map(step, losses)), rank(1, *map(step, losses))])


def test_an_abort_after_all_end_markers_is_no_failure() -> None:
    run = watched(rank(0, ended("finished")), rank(1, ended("max_steps")), log=ABORTED)
    assert isinstance(outcome("original", run, 2), Observation)


def test_an_abort_before_them_is_tried_again() -> None:
    run = watched(rank(0, ended("finished")), rank(1), log=ABORTED)
    assert worth_a_retry(run)
    assert isinstance(outcome("original", run, 2), Failure)


def test_a_crash_that_the_others_lost_their_connection_by_is_tried_again() -> None:
    lost = ended("exception", type="RuntimeError", message="gloo: Connection closed by peer", traceback="")
    assert worth_a_retry(watched(rank(0, lost), rank(1)))
    assert worth_a_retry(watched(rank(0), rank(1), log=ABORTED.replace("-6", "-11")))


def test_a_run_that_the_memory_killer_ended_is_not_tried_again() -> None:
    lost = ended("exception", type="RuntimeError", message="gloo: Connection closed by peer", traceback="")
    assert not worth_a_retry(watched(rank(0, lost), rank(1), log=ABORTED.replace("-6", "-9")))


def test_an_exception_without_words_is_known_by_its_place() -> None:
    trace = 'File "/a/run.py", line 3, in <module>\nFile "/a/dataset.py", line 70, in get\nAssertionError\n'
    raised = ended("exception", type="AssertionError", message="", traceback=trace, ours=False)
    found = outcome("original", watched(rank(0, raised), rank(1)), 2)
    assert isinstance(found, Failure)
    assert found.message == "rank 0 of the original program raised AssertionError in dataset.py:70"


def test_a_run_in_which_a_rank_raised_is_not_tried_again() -> None:
    raised = ended("exception", type="ValueError", message="no", traceback="")
    assert not worth_a_retry(watched(rank(0, raised), rank(1), log=ABORTED))


def test_a_success_of_torchrun_without_end_markers_is_not_believed() -> None:
    found = outcome("rewritten", watched(rank(0, ended("finished")), rank(1), returncode=0), 2)
    assert isinstance(found, Failure)
    assert "1 of 2 ranks" in found.message


def test_a_missing_rank_is_a_failure() -> None:
    assert isinstance(outcome("original", watched(rank(0, ended("finished")), returncode=0), 2), Failure)


def test_the_first_of_several_exceptions_is_the_cause() -> None:
    first = ended("exception", type="KeyError", message="x", traceback="", t=1.0)
    late = ended("exception", type="RuntimeError", message="Connection closed by peer", traceback="", t=2.0)
    found = outcome("original", watched(rank(0, late), rank(1, first)), 2)
    assert isinstance(found, Failure)
    assert found.rank == 1
    assert "KeyError" in found.message


@pytest.mark.parametrize(("ours", "hint"), [(True, "fault of fsdp-migrate"), (False, "run the program by itself")])
def test_a_fault_of_the_probe_is_not_blamed_on_the_program(ours: bool, hint: str) -> None:
    raised = ended("exception", type="AttributeError", message="_handle", traceback="", ours=ours)
    found = outcome("original", watched(rank(0, raised), rank(1)), 2)
    assert isinstance(found, Failure)
    assert hint in found.hint


def test_a_rank_that_vanished_is_the_cause_of_lost_connections() -> None:
    lost = ended("exception", type="RuntimeError", message="gloo: Connection closed by peer", traceback="")
    found = outcome("original", watched(rank(0, lost), rank(1)), 2)
    assert isinstance(found, Failure)
    assert found.rank == 1
    assert "vanished" in found.message


def test_a_rank_that_torchrun_ended_is_not_the_cause() -> None:
    raised = ended("exception", type="ValueError", message="bad batch", traceback="")
    found = outcome("original", watched(rank(0), rank(1, raised), log=ABORTED.replace("-6", "-15")), 2)
    assert isinstance(found, Failure)
    assert found.rank == 1
    assert "ValueError" in found.message


@pytest.mark.parametrize("hung", [None, 4.0])
def test_a_rank_that_left_early_is_the_cause(hung: float | None) -> None:
    went_on = rank(0, step(1.0), step(1.0))
    if hung is None:
        went_on = rank(0, step(1.0), step(1.0), ended("exception", type="E", message="Broken pipe", traceback=""))
    run = replace(watched(went_on, rank(1, step(1.0), ended("finished"))), hung=hung)
    found = outcome("original", run, 2)
    assert isinstance(found, Failure)
    assert found.rank == 1
    assert "ended after 1 steps, while rank 0 went on" in found.message


def test_what_a_program_raised_before_it_had_ranks_is_told() -> None:
    log = 'Traceback (most recent call last):\n  File "a.py", line 1\nhydra.errors.ConfigError: no such file\n'
    found = outcome("original", watched(log=log), 2)
    assert isinstance(found, Failure)
    assert found.message == "the original program raised ConfigError: no such file before it started its processes"


def test_a_program_that_starts_another_number_of_ranks_is_told() -> None:
    four = [rank(number, ended("finished")) for number in range(4)]
    found = outcome("original", watched(*four, returncode=0), 2)
    assert isinstance(found, Failure)
    assert found.message == "the original program starts 4 processes by itself, and 2 were asked for"


def test_a_full_disk_is_named() -> None:
    found = outcome("original", watched(rank(0), rank(1), log=DISK_FULL), 2)
    assert isinstance(found, Failure)
    assert "disk full" in found.message
    assert "TMPDIR" in found.hint


def test_a_disk_with_no_room_for_the_output_either_is_named() -> None:
    found = outcome("original", replace(watched(rank(0, ended("finished")), rank(1)), room=4096), 2)
    assert isinstance(found, Failure)
    assert found.rank == 1
    assert found.message == "rank 1 of the original program ended without a word: the disk is full"
    assert "TMPDIR" in found.hint


def test_a_line_cut_off_by_a_kill_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "rank-00000.jsonl").write_text(json.dumps(META) + "\n" + '{"kind": "st')
    (found,) = read_run(tmp_path)
    assert [record["kind"] for record in found.records] == ["meta"]


def test_records_of_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rank-00000.jsonl").write_text(json.dumps({**META, "schema": 99}) + "\n")
    with pytest.raises(RecordsError, match="schema 99"):
        read_run(tmp_path)


def test_a_resumed_run_is_found_in_the_whole_one() -> None:
    assert resumed_at(run(9, 7, 5, 4, 3.5, 3.2), run(5, 4, 3.5)) == (2, 0.0, 3)


def test_a_resumed_run_is_looked_for_where_something_was_saved() -> None:
    whole = replace(run(9, 7, 5, 4, 3.5, 3.2), files=(SavedFile("torch", "a.pt", 0, 0, 2),))
    assert resumed_at(whole, run(3.5, 3.2))[0] in (1, 2, 3)
    assert resumed_at(whole, run(5, 4, 3.5)) == (2, 0.0, 3)


def test_a_lost_optimizer_state_shows_after_the_first_resumed_step() -> None:
    at, difference, _ = resumed_at(run(9, 7, 5, 4, 3.5, 3.2), run(5, 4.4, 3.9))
    assert at == 2
    assert difference == pytest.approx(0.4 / 4.4, rel=0.2)


def test_one_step_is_not_enough_to_judge_a_resume() -> None:
    assert resumed_at(run(9, 7, 5), run(5.0))[0] == -1
    assert judge("R", "resumed", run(9, 7, 5), run(5.0), coarsest([])).mark is Mark.NOT_AVAILABLE


WHOLE = (9.0, 7.0, 5.0, 4.0, 3.5, 3.2)


@pytest.mark.parametrize(
    ("resumed", "control", "mark", "words"),
    [
        # its optimizer state is lost, and the original's is not
        (run(5.0, 4.4, 3.9), run(5.0, 4.0, 3.5), Mark.FAIL, "the original goes on from its own"),
        # both read their data from the start again
        (run(5.1, 4.2, 3.6), run(5.1, 4.2, 3.6), Mark.PASS, "does as it does"),
        (run(5.1, 4.2, 3.6), run(5.0, 4.3, 3.7), Mark.INCONCLUSIVE, "data's order"),
        # both begin anew: nothing was saved, or not where they look
        (run(9.0, 7.0, 5.0), run(9.0, 7.0, 5.0), Mark.INCONCLUSIVE, "found no checkpoint"),
        (run(9.0, 7.0), "rank 0 raised KeyError", Mark.INCONCLUSIVE, "KeyError"),
        ("rank 0 raised KeyError", run(9.0, 7.0, 5.0), Mark.INCONCLUSIVE, "found no checkpoint"),
        ("rank 0 raised KeyError", run(5.0, 4.0, 3.5), Mark.FAIL, "KeyError"),
        ("rank 0 raised KeyError", "rank 0 raised KeyError", Mark.INCONCLUSIVE, "KeyError"),
    ],
)
def test_a_resume_fails_only_where_the_original_does_not(
    resumed: Observation | str, control: Observation | str, mark: Mark, words: str
) -> None:
    both = Comparison(run(*WHOLE), run(*WHOLE), (), 6)
    failed = CheckRow("R", "resumed", Mark.FAIL, detail=resumed if isinstance(resumed, str) else "")
    found = held_against(failed, resumed, control, both)
    assert found.mark is mark, found
    assert words in found.detail
