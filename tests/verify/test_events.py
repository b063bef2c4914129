"""The event stream of unusual training loops: how many losses and steps each optimizer is seen to make."""

from __future__ import annotations

import pytest

from fsdp_migrate.verify.observation import Observation
from tests.verify.runs import Fleet, Program

pytestmark = pytest.mark.dist

LOOPS = {
    # loop: (losses, steps of each optimizer)
    "reentrant_checkpoint": (3, [3]),
    "lbfgs": (6, [3]),
    "optimizer_in_backward": (3, [3, 3, 3, 3]),
    "subclassed_optimizer": (3, [3]),
    "scaler_that_skips": (3, [2]),
    "autograd_grad": (3, [3]),
    "two_optimizers": (6, [3, 3]),
    "accumulation_and_scheduler": (12, [3]),
}


@pytest.fixture(scope="module")
def observed(fleet: Fleet) -> dict[str, Observation]:
    programs = {loop: Program.of("odd.py", "--max-steps", "3", loop=loop) for loop in LOOPS}
    fleet.programs(list(programs.values()))
    return {loop: fleet.seen(program) for loop, program in programs.items()}


@pytest.mark.parametrize("loop", LOOPS)
def test_losses_and_steps_are_counted(observed: dict[str, Observation], loop: str) -> None:
    losses, steps = LOOPS[loop]
    run = observed[loop]
    assert len(run.losses) == losses
    assert [len(optimizer.norms) for optimizer in run.optimizers] == steps
    assert run.ends == ("max_steps", "max_steps")
    assert not run.errors


def test_the_learning_rate_of_each_step_is_seen(observed: dict[str, Observation]) -> None:
    optimizer = observed["accumulation_and_scheduler"].optimizers[0]
    assert [hyper[0]["lr"] for hyper in optimizer.hyper] == [0.1, 0.05, 0.025]


def test_optimizers_know_their_parameters(observed: dict[str, Observation]) -> None:
    first, second = observed["two_optimizers"].optimizers
    assert first.cls == "SGD"
    assert second.cls == "AdamW"
    assert first.state_bytes == 0
    assert second.state_bytes > 0
