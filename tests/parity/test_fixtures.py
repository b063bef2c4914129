"""The fixtures: each FSDP1 program and its migrated copy run on two ranks, and the runs are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.verify import CheckRequest, Failure, ParityReport, Verdict

from ..checkpoints.files import compare, described
from ..test_fixtures import ALL, FIXTURES, rewritten
from ..verify.together import check_together

SAVING = {
    path.relative_to(FIXTURES).parts[0] for path in FIXTURES.rglob("fsdp1/**/*.py") if "torch.save(" in path.read_text()
}

NOISE = {"shared_kwargs": "context.bias"}
"""What is trained by rounding alone: attention does not depend on its keys' bias, and Adam makes steps of noise."""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, ParityReport | Failure]]:
    """All comparisons, each with the folder that its runs lie in."""
    root = tmp_path_factory.mktemp("fixtures")
    requests = {}
    for name in ALL:
        target, _ = rewritten(name, root / "rewritten")
        before = FIXTURES / name / "fsdp1"
        requests[root / name] = CheckRequest(
            original=before / "train.py",
            rewritten=target / "train.py",
            original_root=before,
            rewritten_root=target,
            world_size=2,
        )
    return {home.name: (home, report) for home, report in check_together(requests).items()}


@pytest.mark.dist
@pytest.mark.parametrize("name", ALL)
def test_migrated_program_trains_the_same_and_saves_the_same(
    name: str, checked: dict[str, tuple[Path, ParityReport | Failure]]
) -> None:
    home, report = checked[name]
    assert isinstance(report, ParityReport), report
    assert report.verdict is Verdict.PASS, f"{report.reason} {report.failed}"
    compare_files(name, home)


def compare_files(name: str, runs: Path) -> None:
    """Assert that both programs saved the same: keys, order, shapes, dtypes and values."""
    before, after = runs / "original" / "scratch", runs / "rewritten" / "scratch"
    saved = [sorted(str(path.relative_to(side)) for path in side.rglob("*.pt")) for side in (before, after)]
    assert saved[0] == saved[1]
    assert bool(saved[0]) is (name in SAVING)
    noise = NOISE.get(name, "nothing")
    for path in saved[0]:
        old, new = ([e for e in described(str(side / path)) if noise not in e[0]] for side in (before, after))
        compare(old, new)
