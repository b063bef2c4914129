"""How many steps a program has made, whatever its optimizers do: counted without any process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fsdp_migrate.probe.lineage import Lineage, Seen

WANTED = 6


class Loop:
    """Plays a training loop until it is enough."""

    def __init__(self) -> None:
        self.lineage, self.backward, self.made = Lineage(), 0, list[str]()
        self._optimizers: dict[str, torch.optim.Optimizer] = {}

    def step(
        self, name: str, held: int = 0, root: int = 0, forwards: tuple[int, ...] = (), inside: bool = False
    ) -> bool:
        """One forward of some roots, a backward, a step; whether to go on."""
        for called in forwards or (root,):
            self.lineage.called(called)
        self.backward += not inside
        seen: Seen = self.lineage.of(
            self._optimizers.setdefault(name, torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]))
        )
        seen.held, seen.roots = frozenset({held}), frozenset({root})
        self.lineage.attempted(seen, self.backward)
        self.made.append(name)
        return not self.lineage.is_enough(WANTED)


def until_enough(play: Callable[[Loop, int], bool]) -> list[str]:
    loop = Loop()
    assert not all(play(loop, number) for number in range(100)), "it never ends"
    return loop.made


def test_one_optimizer() -> None:
    assert len(until_enough(lambda loop, n: loop.step("a"))) == WANTED


@pytest.mark.parametrize("every", [1, 2, 4])
def test_a_new_optimizer_over_the_same_model(every: int) -> None:
    assert len(until_enough(lambda loop, n: loop.step(f"{n // every}"))) == WANTED


def test_a_new_optimizer_over_a_model_that_was_built_again() -> None:
    made = until_enough(lambda loop, n: loop.step(str(n >= 4), held=n >= 4, root=n >= 4))
    assert len(made) in (WANTED, WANTED + 1)


def test_two_that_take_turns_make_as_many_each() -> None:
    def gan(loop: Loop, number: int) -> bool:
        loop.step("critic", 1, 1, (0, 1))
        return loop.step("generator", 0, 0, (0, 1))

    made = until_enough(gan)
    assert made.count("critic") == made.count("generator") == WANTED


def test_two_independent_models_in_one_loop_make_as_many_each() -> None:
    def both(loop: Loop, number: int) -> bool:
        loop.step("one", 0, 0)
        return loop.step("two", 1, 1)

    made = until_enough(both)
    assert made.count("one") == made.count("two") == WANTED


def test_one_optimizer_a_parameter_inside_the_backward() -> None:
    def backward(loop: Loop, number: int) -> bool:
        loop.backward += 1
        return [loop.step(name, held, inside=True) for held, name in enumerate("abcd")][-1]

    made = until_enough(backward)
    assert [made.count(name) for name in "abcd"] == [WANTED] * 4
