"""Migrations that are wrong by one edit: a part of `make mutants`, which judges all of them."""

from __future__ import annotations

import pytest

from tests.verify.mutants.catalogue import MISTAKES, MUTANTS, Mutant
from tests.verify.mutants.edits import moved_up, replaced, swapped
from tests.verify.mutants.judge import Judged, judge, mutate

QUICK = list({mutant.mistake.kind: mutant for mutant in MUTANTS if mutant.fixture == "accumulation"}.values())
"""One of each kind, of one fixture: its original and its floor are run once for all of them."""


@pytest.mark.parametrize(
    ("before", "pattern", "by", "after"),
    [
        ("wrap(a.b, mesh=m)  # c\n", "wrap(A, **REST)", "wrap(A, new=1, **REST)", "wrap(a.b, new=1, mesh=m)  # c\n"),
        ("wrap(x)\n", "wrap(A, **REST)", "wrap(A, new=1, **REST)", "wrap(x, new=1)\n"),
        ("f(b=1, a=2)\n", "f(a=A, b=B)", "f(a=B, b=A)", "f(a=1, b=2)\n"),
        ("f(1)\n", "f(A, **REST)", "None", "None\n"),
        ("é.step(); x.step()\n", "A.step()", "A.step(2)", "é.step(2); x.step(2)\n"),
        ("f(1, 2)\n", "f(A)", "g(A)", "f(1, 2)\n"),
        ("f(x, y) + f(x, x)\n", "f(A, A)", "A", "f(x, y) + x\n"),
    ],
)
def test_a_pattern_finds_what_it_says(before: str, pattern: str, by: str, after: str) -> None:
    assert replaced(before, pattern, by) == after


def test_statements_change_places() -> None:
    loop = "for x in y:\n    loss.backward()  # one\n    f()\n    opt.step()\n"
    assert (
        swapped(loop, "A.backward()", "A.step()")
        == "for x in y:\n    opt.step()  # one\n    f()\n    loss.backward()\n"
    )
    assert swapped(loop, "A.step()", "A.backward()") == loop
    up = "for x in y:\n    opt.step()\n    loss.backward()  # one\n    f()\n    pass\n"
    assert moved_up(loop, "A.step()", "A.backward()") == up


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_every_mistake_is_made(mutant: Mutant) -> None:
    assert mutate(mutant)


def test_mistakes_have_names_of_their_own() -> None:
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judged]:
    return {one.mutant.id: one for one in judge(QUICK, tmp_path_factory.mktemp("mutants"))}


@pytest.mark.dist
@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.mistake.name)
def test_a_mutant_is_rejected_by_the_check_that_is_there_for_it(judged: dict[str, Judged], mutant: Mutant) -> None:
    one = judged[mutant.id]
    assert one.rejected, one.why
    assert mutant.mistake.expected in one.failed
