"""Check S3 on made-up runs: which differences of communication are explained, and which are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsdp_migrate.verify import CheckRow, Mark
from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.checks.structure import Comm, communication
from fsdp_migrate.verify.observation import Loss, Observation, Unit, merge
from fsdp_migrate.verify.records import RankRecords

BLOCK = Unit(0, "block", "FSDP1", ("w",), 100, 100, 100, "float32", "float32", "float32", "FULL_SHARD", 2)
ROOT = replace(BLOCK, fqn="", params=("v",), numel=8, padded_numel=8, reduced_numel=8)


def run(
    gathers: int,
    reductions: int,
    size: int = 400,
    micro_batches: int = 1,
    forwards: int = 1,
    units: tuple[Unit, ...] = (BLOCK, ROOT),
    unit_forwards: int = 1,
    gathered: int | None = None,
    recomputed: int = 0,
) -> Observation:
    moved = gathers * size if gathered is None else gathered
    comm: Comm = {"all_gather": (gathers, moved), "reduce_scatter": (reductions, reductions * size)}
    empty = merge([RankRecords(0, ())])
    losses = tuple(Loss(step, (1.0,)) for step in range(4) for _ in range(micro_batches))
    return replace(
        empty,
        units=units,
        comm=(comm,) * 4,
        steps=(4,),
        losses=losses,
        forwards=4 * forwards,
        unit_forwards=unit_forwards,
        recomputed=recomputed,
    )


def row(original: Observation, rewritten: Observation) -> CheckRow:
    return communication(Comparison(original, rewritten, (), 4))[0]


def mark(original: Observation, rewritten: Observation) -> Mark:
    return communication(Comparison(original, rewritten, (), 4))[0].mark


def test_equal_counts_and_bytes_pass() -> None:
    assert mark(run(5, 3), run(5, 3)) is Mark.PASS


@pytest.mark.parametrize(("gathers", "reductions", "size"), [(4, 3, 400), (5, 6, 400), (5, 3, 200), (0, 0, 400)])
def test_other_counts_or_bytes_fail(gathers: int, reductions: int, size: int) -> None:
    assert mark(run(5, 3), run(gathers, reductions, size)) is Mark.FAIL


def test_the_same_bytes_in_other_calls_fail_nothing() -> None:
    """LoRA under activation checkpointing gathers in 41 calls what took FSDP1 57, and the bytes stay within 2 %."""
    fewer, more = row(run(57, 24), run(41, 24, gathered=57 * 392)), row(run(41, 24), run(57, 24, gathered=41 * 408))
    assert (fewer.mark, fewer.warns) == (Mark.INFO, False)
    assert "fewer gathers" in fewer.detail
    assert (more.mark, more.warns) == (Mark.INFO, True)
    assert "more gathers" in more.detail


def test_a_third_gather_inside_checkpointing_may_be_left_out() -> None:
    """QLoRA: FSDP1 gathers each small unit three times, FSDP2 twice; the large ones are gathered twice by either."""
    units = (*(replace(BLOCK, fqn=f"block.{i}", params=(f"w{i}",)) for i in range(20)), ROOT)
    before = run(57, 24, units=units, recomputed=16)
    fewer = row(before, run(41, 24, units=units, gathered=57 * 370))
    assert (fewer.mark, fewer.warns) == (Mark.INFO, False)
    assert "fewer gathers" in fewer.detail
    assert mark(run(57, 24, units=units), run(41, 24, units=units, gathered=57 * 370)) is Mark.FAIL, "no checkpointing"
    assert mark(before, run(40, 24, units=units, gathered=57 * 370)) is Mark.FAIL, "not even once in backward"
    assert mark(before, run(41, 24, 200, units=units)) is Mark.FAIL, "other bytes are reduced"


def test_a_unit_that_is_called_several_times_a_backward_is_told_apart() -> None:
    """Continuous thoughts: the model's forward calls its language model three times."""
    found = row(run(17, 9, unit_forwards=3), run(25, 9, unit_forwards=3))
    assert (found.mark, found.warns) == (Mark.INFO, True)
    assert "several forwards share one backward" in found.detail
    assert mark(run(17, 9), run(25, 9)) is Mark.FAIL


def test_several_forwards_a_backward_and_weights_kept_between_micro_batches_are_told_apart_together() -> None:
    kept = tuple(replace(unit, strategy="SHARD_GRAD_OP") for unit in (BLOCK, ROOT))
    before = run(3, 3, micro_batches=2, unit_forwards=4, units=kept)
    found = row(before, run(10, 5, micro_batches=2, unit_forwards=4, units=kept))
    assert (found.mark, found.warns) == (Mark.INFO, True)
    assert mark(before, run(13, 5, micro_batches=2, unit_forwards=4, units=kept)) is Mark.FAIL
    freed = run(3, 3, micro_batches=2, unit_forwards=4)
    assert mark(freed, run(10, 5, micro_batches=2, unit_forwards=4)) is Mark.FAIL, "FULL_SHARD keeps nothing"


def test_padding_of_a_group_explains_as_much_as_it_adds() -> None:
    padded = (BLOCK, replace(ROOT, padded_numel=10, reduced_numel=10))
    assert mark(run(5, 3), run(5, 3, 500, units=padded)) is Mark.PASS
    assert mark(run(5, 3), run(5, 3, 600, units=padded)) is Mark.FAIL


def test_parameters_without_gradient_are_not_reduced_by_fsdp2() -> None:
    frozen = (replace(BLOCK, reduced_numel=60), ROOT)
    original, rewritten = run(5, 3), run(5, 3, units=frozen)
    fewer: Comm = {**rewritten.comm[0], "reduce_scatter": (3, 3 * 300)}
    assert mark(original, replace(rewritten, comm=(fewer,) * 4)) is Mark.PASS
    assert mark(original, replace(run(5, 3), comm=(fewer,) * 4)) is Mark.FAIL


def test_gathers_that_shard_grad_op_saves_in_no_sync_are_told_apart() -> None:
    kept = tuple(replace(unit, strategy="SHARD_GRAD_OP") for unit in (BLOCK, ROOT))
    assert mark(run(3, 3, micro_batches=2, units=kept), run(6, 3, micro_batches=2)) is Mark.INFO
    assert mark(run(3, 3, micro_batches=2, units=kept), run(5, 3, micro_batches=2)) is Mark.FAIL
    assert mark(run(3, 3, micro_batches=2), run(6, 3, micro_batches=2)) is Mark.FAIL


def test_several_forwards_before_one_backward_are_told_apart() -> None:
    assert mark(run(11, 3, forwards=2), run(13, 5, forwards=2)) is Mark.INFO
    assert mark(run(11, 3, forwards=2), run(13, 7, forwards=2)) is Mark.FAIL
    assert mark(run(11, 3, forwards=1), run(13, 5, forwards=1)) is Mark.FAIL
    assert mark(run(11, 3, forwards=2), run(13, 5, forwards=4)) is Mark.FAIL


def test_a_root_that_fsdp1_leaves_gathered_is_told_apart() -> None:
    stale = replace(run(5, 3), evaluated_before_step=0)
    assert mark(stale, run(6, 3)) is Mark.INFO
    assert mark(stale, run(7, 3)) is Mark.FAIL
    assert mark(stale, run(6, 4)) is Mark.FAIL
    assert mark(run(5, 3), run(6, 3)) is Mark.FAIL


def test_one_step_is_not_enough_to_look() -> None:
    single = replace(run(5, 3), comm=run(5, 3).comm[:1])
    assert mark(single, single) is Mark.NOT_AVAILABLE
