"""What was not seen never passes: each place in the checks that could answer without having looked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fsdp_migrate.probe.layout import contiguous
from fsdp_migrate.probe.sketch import sketch as piece
from fsdp_migrate.verify import Mark, ParityReport, Verdict
from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.checks.initial import init_problem
from fsdp_migrate.verify.dry_run import judge as judge_dry_run
from fsdp_migrate.verify.observation import Loss, Observation, Optimizer, Unit
from fsdp_migrate.verify.run import compare_observations, wants_more_floors
from fsdp_migrate.verify.sketches import Sketch

Change = Callable[[Observation], Observation]


def sketch(value: float = 1.0) -> Sketch:
    return Sketch([value] * 16, squares=value**2, total=value, owned=4.0, numel=4, heads={0: (1.0, 2.0), 1: (3.0, 4.0)})


def run(api: str) -> Observation:
    """Four steps on two ranks of a program with two weights, as FSDP1 or FSDP2 run it."""
    unit = Unit(0, "", api, ("w", "v"), 8, 8, 8, "float32", "float32", "float32", "FULL_SHARD", 2)
    weights = {"0:w": sketch(), "0:v": sketch(2.0)}
    optimizer = Optimizer(
        cls="AdamW",
        params=(("0:w", "0:v"),),
        hyper=([{"lr": 0.1}],) * 4,
        norms=(1.0,) * 4,
        norms_before=(1.0,) * 4,
        state_bytes=64,
        stirs=True,
    )
    return Observation(
        world=2,
        units=(unit,),
        steps=(4, 4),
        losses=tuple(Loss(step, (1.0 / (step + 1), 1.0)) for step in range(4)),
        uneven_losses=False,
        optimizers=(optimizer,),
        init=weights,
        start={},
        gradients=weights,
        without_gradient=frozenset(),
        end=weights,
        buffers={},
        carried=(False,) * 4,
        comm=({"all_gather": (2, 64), "reduce_scatter": (1, 32)},) * 4,
        forwards=4,
        unit_forwards=1,
        recomputed=0,
        loss_dtypes=("float32",),
        seconds=(0.1,) * 4,
        peaks=(None,) * 4,
        flags={"torch": "2.13.0"},
        autocast=None,
        ranks_disagree=(),
        meta_params=False,
        redrawn=False,
        draws_repeat=False,
        errors=(),
        outside=(),
        written=(),
        read_back=(),
        float8=None,
        ends=("max_steps",) * 2,
        files=(),
        uses=frozenset(),
        evaluated_before_step=None,
    )


def same(observation: Observation) -> Observation:
    return observation


def without(**fields: Any) -> Change:
    return lambda observation: replace(observation, **fields)


def optimizers(**fields: Any) -> Change:
    return lambda observation: replace(observation, optimizers=(replace(observation.optimizers[0], **fields),))


def report(original: Change = same, rewritten: Change = same, floor: Change | None = same) -> ParityReport:
    floors = () if floor is None else (floor(original(run("FSDP1"))),)
    return compare_observations(Comparison(original(run("FSDP1")), rewritten(run("FSDP2")), floors, 4))


def marks(found: ParityReport, check: str) -> set[Mark]:
    return {row.mark for row in found.rows if row.id == check}


def test_two_runs_that_agree_pass() -> None:
    found = report()
    assert found.verdict is Verdict.PASS, found.reason
    assert {row.mark for row in found.rows} <= {Mark.PASS, Mark.INFO}


def drifted(share: float) -> Change:
    """Losses that differ from the second step on."""
    return without(losses=tuple(Loss(step, ((1.0 + share * (step > 0)) / (step + 1), 1.0)) for step in range(4)))


@pytest.mark.parametrize(
    ("change", "more"),
    [
        (same, False),
        (drifted(1e-4), True),
        (lambda o: optimizers(hyper=([{"lr": 0.2}],) * 4)(drifted(1e-4)(o)), False),
    ],
)
def test_one_floor_run_is_not_enough_where_nothing_but_the_trajectories_differs(change: Change, more: bool) -> None:
    before, floor = run("FSDP1"), run("FSDP1")
    one = Comparison(before, change(run("FSDP2")), (floor,), 4)
    assert wants_more_floors(one) is more
    assert not wants_more_floors(replace(one, floors=(floor,) * 3))
    assert not wants_more_floors(one, allow=("N4",))


def test_the_largest_of_the_floor_runs_counts() -> None:
    before, after = run("FSDP1"), drifted(1e-4)(run("FSDP2"))
    drift = drifted(3e-5)(run("FSDP1"))
    assert compare_observations(Comparison(before, after, (run("FSDP1"),), 4)).verdict is Verdict.FAIL
    assert compare_observations(Comparison(before, after, (run("FSDP1"), drift, drift), 4)).verdict is Verdict.PASS


LOST = (Loss(0, (1.0, 1.0)), Loss(1, (math.nan, 1.0)), Loss(2, (math.nan, 1.0)), Loss(3, (math.nan, 1.0)))


@pytest.mark.parametrize(
    ("check", "both", "words"),
    [
        ("V0", without(errors=("rank 1: RuntimeError in backward",)), "swallowed an error"),
        ("V0", without(steps=(4, 3)), "different numbers of steps"),
        ("V0", without(steps=(0, 0)), "no optimizer step"),
        ("V0", without(losses=()), "no loss was seen"),
        ("V0", without(losses=(Loss(0, (math.nan, 1.0)),) * 4), "from the start"),
        ("V0", without(uneven_losses=True), "different numbers of backward"),
        ("V0", without(init={"0:w": replace(sketch(), nonfinite=1)}), "NaN or infinite first weights"),
        ("V0", without(gradients={"0:w": replace(sketch(), nonfinite=1)}), "NaN or infinite first weights"),
        ("V0", without(init={"0:w": replace(sketch(), owned=2.0)}), "only a part of w"),
        ("V0", without(gradients={"0:w": replace(sketch(), owned=2.0)}), "only a part of w"),
        ("E0", without(flags={}), "not recorded"),
        ("H0", without(optimizers=()), "no optimizer"),
        ("S1", without(units=()), "no shard group"),
        ("S2", without(units=()), "no shard group"),
        ("S3", without(comm=({},)), "needs two steps"),
        ("S3", without(comm=({},) * 4), "gathered nothing"),
        ("S4", without(optimizers=()), "no optimizer"),
        ("N0", without(init={}), "no weights"),
        ("N1", without(losses=()), "no loss"),
        ("N2", optimizers(norms_before=(None,) * 4), "no gradient"),
        ("N3", without(gradients={}), "no gradient"),
        ("G0", without(gradients={}), "no gradient"),
        ("G1", without(carried=()), "no step"),
        ("N4", without(losses=()), "0 in common"),
        ("N4n", without(optimizers=()), "0 in common"),
    ],
)
def test_what_neither_side_shows_is_undecided(check: str, both: Change, words: str) -> None:
    found = report(both, both)
    assert found.verdict is not Verdict.PASS
    assert marks(found, check) & {Mark.NOT_AVAILABLE, Mark.INCONCLUSIVE}, found.rows
    assert words in " ".join(row.detail for row in found.rows if row.id == check)


@pytest.mark.parametrize(
    ("before", "after", "mark"),
    [
        ("cuda:nccl", "cpu:gloo,cuda:nccl", Mark.PASS),
        ("cpu:gloo,cuda:nccl", "cuda:nccl", Mark.FAIL),
        ("cuda:nccl", "cpu:gloo,cuda:gloo", Mark.FAIL),
        (None, "cuda:nccl", Mark.FAIL),
    ],
)
def test_each_device_keeps_its_backend(before: str | None, after: str, mark: Mark) -> None:
    """What FSDP2 offloads to the CPU needs gloo there, where FSDP1 had NCCL alone: E0 failed on GPUs."""
    found = report(without(flags={"backend": before}), without(flags={"backend": after}))
    assert marks(found, "E0") == {mark}


@pytest.mark.parametrize(
    ("check", "rewritten", "words"),
    [
        ("V0", without(units=run("FSDP1").units), "still has 1 FSDP1 group"),
        ("V0", without(units=()), "nothing is sharded"),
        ("V0", without(steps=(3, 3)), "steps made"),
        ("V0", without(steps=(0, 0)), "no optimizer step"),
        ("V0", without(losses=run("FSDP2").losses[:3]), "backward passes"),
        ("H0", without(optimizers=()), "0 in the rewritten"),
        ("H0", optimizers(hyper=([{"lr": 0.1}],) * 3), "made 4 steps, then 3"),
        ("S3", without(comm=({},) * 4), "2 -> 0"),
        ("N0", without(init={}), "w"),
        ("N0", without(init={"0:w": replace(sketch(), nonfinite=1), "0:v": sketch(2.0)}), "w"),
        ("N1", without(losses=(Loss(0, (math.nan, 1.0)), *run("FSDP2").losses[1:])), "nan"),
        ("N2", optimizers(norms=(math.nan,) * 4), "nan"),
        ("N3", without(gradients={}), "w"),
        ("N3", without(gradients={"0:w": replace(sketch(), nonfinite=1), "0:v": sketch(2.0)}), "w"),
        ("N4", without(losses=LOST), "step 1"),
    ],
)
def test_what_only_the_rewritten_program_lacks_fails(check: str, rewritten: Change, words: str) -> None:
    found = report(rewritten=rewritten)
    assert found.verdict is Verdict.FAIL
    assert Mark.FAIL in marks(found, check), found.rows
    assert words in " ".join(row.detail for row in found.rows if row.id == check)


def first_loss(value: float) -> Change:
    return without(losses=(Loss(0, (value, 1.0)), *run("FSDP1").losses[1:]))


def first_gradient(value: float) -> Change:
    return without(gradients={"0:w": sketch(value), "0:v": sketch(2.0)})


@pytest.mark.parametrize(
    ("rewritten", "floor", "check", "words"),
    [
        (same, None, "N4", "no floor run"),
        (same, without(losses=run("FSDP1").losses[:2]), "N4", "4 in common, 2 of them in the floor run"),
        (first_loss(1.5), first_loss(2.0), "N1", "differs from itself"),
        (first_loss(1.5), first_loss(2.0), "N4", "--seed"),
        (optimizers(norms=(1.5,) * 4), optimizers(norms=(2.0,) * 4), "N2", "differs from itself"),
        (first_gradient(2.0), first_gradient(3.0), "N3", "differ from themselves"),
    ],
)
def test_a_floor_that_says_nothing_is_undecided(
    rewritten: Change, floor: Change | None, check: str, words: str
) -> None:
    found = report(rewritten=rewritten, floor=floor)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert words in " ".join(row.detail for row in found.rows if row.id == check)


def cut(weight: torch.Tensor, *cuts: int) -> Sketch:
    """The sketch of a layer whose ranks hold what lies between these places."""
    whole, ends = Sketch([0.0] * 16, numel=weight.numel()), (0, *cuts, weight.numel())
    for start, end in itertools.pairwise(ends):
        whole.add(piece(weight[start:end], contiguous(start, end - start)), 1.0)
    return whole


def test_the_same_weights_summed_in_another_order_are_the_same() -> None:
    weight = torch.randn(1 << 20, generator=torch.Generator().manual_seed(0))
    weight[::3] *= 1e-7
    rows, flat = cut(weight, 1 << 19), cut(weight, 500_001)
    assert rows.distance(flat) > 0.0, "nothing was rounded: the layer is too small to show it"
    changed = weight.clone()
    changed[77] *= 1 + 2.0**-20
    for other, verdict in ((flat, Verdict.PASS), (cut(changed, 500_001), Verdict.FAIL)):
        before, after = run("FSDP1"), run("FSDP2")
        before, after = replace(before, init={"0:w": rows}), replace(after, init={"0:w": other})
        found = compare_observations(Comparison(before, after, (before,), 4))
        assert found.verdict is verdict, found.rows


def test_programs_that_agree_pass_whatever_moved_weights_do() -> None:
    """BatchNorm over a batch of two: weights one ulp away give other gradients, and no seed would help."""
    rough = without(
        gradients={"0:w": sketch(3.0), "0:v": sketch(2.0)},
        losses=tuple(Loss(step, (1.1 / (step + 1), 1.0)) for step in range(4)),
        optimizers=optimizers(norms=(2.0,) * 4, norms_before=(2.0,) * 4)(run("FSDP1")).optimizers,
    )
    found = report(floor=rough)
    assert found.verdict is Verdict.PASS, found.rows


def test_weights_that_change_from_run_to_run_are_undecided() -> None:
    drawn = without(init={"0:w": sketch(1.1), "0:v": sketch(2.0)})
    found = report(rewritten=drawn, floor=drawn)
    assert marks(found, "N0") == {Mark.INCONCLUSIVE}
    assert "--seed" in found.row("N0").detail


def test_weights_that_could_not_be_transplanted_are_undecided() -> None:
    before, after = run("FSDP1"), run("FSDP2")
    drawn = replace(after, init={"0:w": sketch(1.1), "0:v": sketch(2.0)}, meta_params=True)
    half = replace(after, start={"0:w": sketch(1.1), "0:v": sketch(2.0)})
    found = compare_observations(Comparison(before, half, (before,), 4, as_found=drawn))
    assert marks(found, "N0") == {Mark.INCONCLUSIVE}
    assert "could not be made equal" in found.row("N0").detail


def test_losses_that_are_lost_on_the_way_are_said() -> None:
    lost = without(losses=LOST)
    found = report(lost, lost)
    assert "from step 1 on in both" in found.row("V0").detail


def test_stale_root_weights_of_fsdp1_are_no_verdict_on_the_migration() -> None:
    drifted = without(losses=tuple(Loss(step, (2.0 - (step < 2), 1.0)) for step in range(4)))
    before = without(losses=tuple(Loss(step, (1.0, 1.0)) for step in range(4)), evaluated_before_step=1)
    found = report(before, drifted)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "stale root weights" in found.row("N4").detail
    late = report(lambda observation: replace(before(observation), evaluated_before_step=2), drifted)
    assert late.verdict is Verdict.FAIL, "the evaluation came after the difference"


def test_v0_cannot_be_allowed() -> None:
    both = run("FSDP1")
    found = compare_observations(Comparison(both, both, (both,), 4), allow=("V0",))
    assert found.failed == ("V0",)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (same, same, Verdict.PASS),
        (without(units=()), same, Verdict.INCONCLUSIVE),
        (same, without(units=()), Verdict.FAIL),
        (same, without(units=run("FSDP1").units), Verdict.FAIL),
        (without(comm=({},) * 4), without(comm=({},) * 4), Verdict.INCONCLUSIVE),
        (without(comm=({},)), without(comm=({},)), Verdict.INCONCLUSIVE),
        (without(optimizers=()), without(optimizers=()), Verdict.INCONCLUSIVE),
    ],
)
def test_a_dry_run_that_saw_nothing_is_undecided(before: Change, after: Change, verdict: Verdict) -> None:
    found = judge_dry_run(Comparison(before(run("FSDP1")), after(run("FSDP2")), (), 4), (), 64)
    assert found.verdict is verdict, found.rows


def test_a_loss_in_bf16_may_round_the_other_way() -> None:
    """One unit in the last place of 0.77 is 5.1e-3 of it, whatever the floor says."""

    def losses(*values: float) -> Change:
        seen = tuple(Loss(step, (value, value)) for step, value in enumerate(values))
        return without(losses=seen, loss_dtypes=("bfloat16",), autocast="bfloat16")

    before = losses(0.84375, 0.8125, 0.79296875, 0.76953125)
    assert report(before, losses(0.84375, 0.8125, 0.79296875, 0.7734375)).verdict is Verdict.PASS
    assert report(before, losses(0.84375, 0.8125, 0.79296875, 0.7812500)).row("N4").mark is Mark.FAIL
    in_full = without(losses=before(run("FSDP1")).losses, loss_dtypes=("float32",), autocast="bfloat16")
    other = replace(in_full(run("FSDP2")), losses=losses(0.84375, 0.8125, 0.79296875, 0.7734375)(run("FSDP2")).losses)
    assert report(in_full, lambda _: other).row("N4").mark is Mark.FAIL


def test_a_loss_that_is_lost_is_the_headline() -> None:
    found = report(rewritten=lambda seen: replace(seen, losses=LOST, comm=({},) * 4))
    assert {"S3", "N4"} <= set(found.failed)
    assert found.reason.startswith(
        "N4 loss trajectory: the loss of the rewritten program is NaN or infinite from step 1"
    )


def test_weights_that_are_drawn_after_sharding_are_another_draw() -> None:
    before = run("FSDP1")
    drawn = replace(run("FSDP2"), init={"0:w": sketch(1.1), "0:v": sketch(2.0)})
    assert "neither side initialises after sharding" in init_problem(before, drawn)
    assert init_problem(before, replace(drawn, redrawn=True)) == ""


def test_weights_that_differ_between_the_ranks_of_the_original_are_no_lost_broadcast() -> None:
    before, torn = run("FSDP1"), replace(run("FSDP2"), init={"0:w": sketch(1.1), "0:v": sketch(2.0)})
    torn = replace(torn, ranks_disagree=("w",))
    assert "sync_module_states" in init_problem(before, torn)
    assert init_problem(replace(before, ranks_disagree=("layer.w",)), torn) == ""


def test_slices_that_repeat_are_the_machines_where_cuda_is_pretended() -> None:
    alike = {"0:w": replace(sketch(1.1), heads={0: (1.0, 2.0), 1: (1.0, 2.0)}), "0:v": sketch(2.0)}
    drawn = replace(run("FSDP2"), init=alike, redrawn=True)
    assert "repeat each other" in init_problem(run("FSDP1"), drawn)
    assert init_problem(run("FSDP1"), replace(drawn, draws_repeat=True)) == ""
