"""Questions in cycles: solved together, known for good, and each with one answer."""

from collections import Counter
from collections.abc import Mapping
from itertools import permutations

import pytest

from fsdp_migrate.pyanalysis import solver as bounds
from fsdp_migrate.pyanalysis.room import room_for_trees
from fsdp_migrate.pyanalysis.solver import Solver


class Reachable:
    """Which letters are reachable from one; `!b`: `B` as well, where nothing but `b` itself is reachable from `b`."""

    def __init__(self, edges: Mapping[str, str]) -> None:
        self.edges = edges
        self.solver = Solver(str)
        self.worked: Counter[str] = Counter()

    def ask(self, letter: str) -> tuple[str, ...]:
        return self.solver.ask(letter, lambda: self.work(letter))

    def work(self, letter: str) -> list[str]:
        self.worked[letter] += 1
        found, is_tested = [letter], False
        for other in self.edges.get(letter, ""):
            if other == "!":
                is_tested = True
            elif is_tested:
                found += [other.upper()] if self.is_alone(other) else []
                is_tested = False
            else:
                found += self.ask(other)
        return found

    def is_alone(self, letter: str) -> bool:
        return self.solver.decide(lambda: set(self.ask(letter)) == {letter}, False)


GRAPHS = {
    "one cycle": {"a": "b", "b": "c", "c": "ad"},
    "two cycles that meet": {"a": "b", "b": "ac", "c": "bd", "d": "c"},
    "a cycle that several ask": {"a": "cd", "b": "dc", "c": "d", "d": "c"},
    "itself": {"a": "a", "b": "ab"},
    "a test outside of the cycle": {"a": "b!d", "b": "a", "c": "a!a"},
    "a test in its cycle": {"a": "b!c", "b": "a", "c": "a"},
    "tests of each other": {"a": "!b", "b": "!a", "c": "ab"},
    "a test that asks for more": {"a": "b!c", "b": "a", "c": "!ad", "d": "b"},
}


@pytest.mark.parametrize("edges", GRAPHS.values(), ids=GRAPHS.keys())
def test_answers_do_not_depend_on_the_order(edges: Mapping[str, str]) -> None:
    found = []
    for order in permutations("abcd"):
        graph = Reachable(edges)
        found.append({letter: sorted(graph.ask(letter)) for letter in order})
    assert all(answers == found[0] for answers in found)


def test_all_of_a_cycle_is_known_at_once() -> None:
    graph = Reachable({"a": "b", "b": "c", "c": "ad", "d": ""})
    assert graph.ask("a") == ("a", "b", "c", "d")
    worked = dict(graph.worked)
    assert [graph.ask(letter) for letter in "bcd"] == [(*"abcd",), (*"abcd",), ("d",)]
    assert graph.worked == worked


def test_what_lies_deep_waits() -> None:
    size = 2_000
    solver = Solver(int)

    def ask(number: int) -> tuple[int, ...]:
        return solver.ask(number, lambda: [number, *ask(number + 1)[:3]] if number < size else [number])

    with room_for_trees():
        assert ask(0) == (0, 1, 2, 3)


def test_what_is_too_much_work_is_left_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_WORK", 100)
    monkeypatch.setattr(bounds, "MOST_WORK_BEHIND", 10)
    solver = Solver(int)

    def ask(number: int) -> tuple[int, ...]:
        return solver.ask(number, lambda: work(number), lambda: [-1])

    def work(number: int) -> list[int]:
        return [number, *(found for each in range(1, 100 if number % 100 == 0 else 1) for found in ask(number + each))]

    assert ask(0) == (-1,), "what stands for the rest"
    assert ask(5) == (5,), "what was found for good"
    assert ask(99) == (99,), "what is little work"
    assert ask(100) == (-1,)
    assert list(solver.unfinished) == [0, 100]
