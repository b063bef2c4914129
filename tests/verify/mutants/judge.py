"""Runs mutants, each original and its floor once, and judges them by the checks that a user has."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fsdp_migrate.verify import CheckRequest, Failure, ParityReport, Verdict
from tests.test_fixtures import FIXTURES, rewritten
from tests.verify.mutants.catalogue import Mutant
from tests.verify.together import Pair, check_pairs

STEPS = 12
"""The fixtures that save do so by then, and the one that resumes has gone on."""


@dataclass(frozen=True)
class Judged:
    """What the checks said of one mutant."""

    mutant: Mutant
    report: ParityReport | Failure

    @property
    def failed(self) -> tuple[str, ...]:
        return self.report.failed if isinstance(self.report, ParityReport) else ()

    @property
    def rejected(self) -> bool:
        return isinstance(self.report, ParityReport) and self.report.verdict is Verdict.FAIL

    @property
    def as_expected(self) -> bool:
        return self.rejected and self.mutant.mistake.expected in self.failed

    @property
    def why(self) -> str:
        if isinstance(self.report, Failure):
            return f"does not run: {self.report.message}"
        return f"{self.report.verdict.value}: {self.report.reason}"


@cache
def migrated(fixture: str) -> dict[str, str]:
    """The files of a fixture as the tool writes them."""
    with tempfile.TemporaryDirectory() as folder:
        target, _ = rewritten(fixture, Path(folder))
        return {str(path.relative_to(target)): path.read_text() for path in sorted(target.rglob("*.py"))}


def mutate(mutant: Mutant) -> dict[str, str]:
    """The migrated fixture with the mistake in it. A mistake that changes nothing is an error of the catalogue."""
    before = migrated(mutant.fixture)
    after = {
        name: text if name.endswith("fsdp2_support.py") else mutant.mistake.edit(text) for name, text in before.items()
    }
    assert after != before, f"{mutant.id} changes nothing"
    for name, text in after.items():
        compile(text, name, "exec")
    return after


def judge(mutants: Sequence[Mutant], home: Path) -> list[Judged]:
    """What the checks say of each."""
    pairs = [_pair(mutant, home, home / f"mutant-{number}") for number, mutant in enumerate(mutants)]
    reports = check_pairs(pairs)
    for pair in pairs:
        shutil.rmtree(pair.place)
    return [Judged(mutant, report) for mutant, report in zip(mutants, reports, strict=True)]


def _pair(mutant: Mutant, home: Path, place: Path) -> Pair:
    before, after = FIXTURES / mutant.fixture / "fsdp1", place / "tree"
    for name, text in mutate(mutant).items():
        path = after / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    request = CheckRequest(
        before / "train.py", after / "train.py", 2, steps=STEPS, original_root=before, rewritten_root=after
    )
    return Pair(request, home / mutant.fixture, place)
