"""Every case many times over, each time from other weights, other data and another floor; writes RESULTS.md.

    python -m tests.verify.tenfold                  # 10 times each right migration, 2 times each wrong one
    python -m tests.verify.tenfold --right 3 --wrong 1

The test suite sees each case once, with the first draw. This is the longer look, for whoever changes a check: it takes
about twenty minutes on two cores. One false alarm, or one wrong migration that passes, and it ends with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fsdp_migrate.verify import Mark, ParityReport, Verdict
from fsdp_migrate.verify.resume import judge
from fsdp_migrate.verify.thresholds import coarsest
from tests.verify.cases import (
    CALIBRATION,
    HOLD_OUT,
    RESUMED,
    RESUMED_WRONGLY,
    RIGHT,
    RIGHT_HOLD_OUT,
    RIGHT_LATER,
    UNDECIDED,
)
from tests.verify.runs import STEPS, Case, Fleet, Program

RESULTS = Path(__file__).with_name("RESULTS.md")
AT_ONCE = 24
"""Cases run in one go; nothing of them is kept on the disk for longer."""


@dataclass(frozen=True)
class Line:
    """What one case came to."""

    case: Case
    part: str
    reports: tuple[ParityReport, ...]

    @property
    def good(self) -> int:
        return sum(self._is_good(report) for report in self.reports)

    @property
    def as_expected(self) -> bool:
        return self.good == len(self.reports)

    @property
    def closest(self) -> str:
        """The loss trajectory that came nearest to its limit, as a share of it."""
        shares = [_share(report) for report in self.reports]
        return f"{max(shares):.2f}"

    @property
    def failed(self) -> str:
        """Checks that failed, the expected ones first; how often, when not every time."""
        counts = Counter(check for report in self.reports for check in set(report.failed))
        names = sorted(counts, key=lambda check: (check not in self.case.caught_by, check))
        return ", ".join(n if counts[n] == len(self.reports) else f"{n} ({counts[n]}×)" for n in names)

    def _is_good(self, report: ParityReport) -> bool:
        if self.part == "undecided":
            return report.verdict is Verdict.INCONCLUSIVE
        if not self.case.mutation:
            return report.verdict is Verdict.PASS
        return report.verdict is Verdict.FAIL and set(self.case.caught_by) <= set(report.failed)


def lines(cases: list[tuple[str, Case]], repeats: int) -> Iterator[Line]:
    """Run `cases`, a few at a time."""
    for start in range(0, len(cases), AT_ONCE):
        some = cases[start : start + AT_ONCE]
        found: dict[str, list[ParityReport]] = {case.name: [] for _, case in some}
        for repeat in range(repeats):
            with tempfile.TemporaryDirectory(prefix="tenfold-", ignore_cleanup_errors=True) as home:
                fleet = Fleet(Path(home))
                fleet.observe([replace(case, repeat=repeat) for _, case in some])
                for _, case in some:
                    found[case.name].append(fleet.report(replace(case, repeat=repeat)))
        for part, case in some:
            line = Line(case, part, tuple(found[case.name]))
            print(f"{line.good}/{repeats} {case.name}", flush=True)
            yield line


def checkpoints() -> list[tuple[str, str, bool]]:
    """(what, what R measured, whether that is right) of the programs that resume."""
    with tempfile.TemporaryDirectory(prefix="tenfold-", ignore_cleanup_errors=True) as home:
        fleet = Fleet(Path(home))
        fleet.resumed([RESUMED, *RESUMED_WRONGLY])
        return [_resumed(fleet, program) for program in (RESUMED, *RESUMED_WRONGLY)]


def _resumed(fleet: Fleet, program: Program) -> tuple[str, str, bool]:
    mutation = json.loads(program.options)["mutation"]
    row = judge("R", "resumed", fleet.seen(program), fleet.seen_resumed(program), coarsest([]))
    expected = Mark.FAIL if mutation else Mark.PASS
    return (
        mutation.replace("_", " ") or "right",
        f"{row.value} (limit {row.limit}) {row.mark.value}",
        row.mark is expected,
    )


def _share(report: ParityReport) -> float:
    row = report.row("N4")
    limit = float(row.limit or "nan")
    return float(row.value or "nan") / limit if limit else math.nan


def page(right: list[Line], wrong: list[Line], undecided: list[Line], resumed: list[tuple[str, str, bool]]) -> str:
    """RESULTS.md."""
    text = [
        "# What the checks make of right and wrong migrations",
        "",
        f"Made by `python -m tests.verify.tenfold` on torch {torch.__version__}, gloo, {STEPS} steps a run. Each",
        "repeat draws other weights, other data and another floor. The thresholds are those of",
        "`fsdp_migrate/verify/thresholds.py`, frozen before the hold-out was written; what it showed at first",
        "sight is told in `cases.py`.",
        "",
        f"- **{_count(right)} of right migrations: {_bad(right)} false alarms**",
        f"- **{_count(wrong)} of wrong migrations: {_bad(wrong)} not rejected by the expected check**",
        f"- {len(resumed)} programs that resume: {sum(not ok for _, _, ok in resumed)} judged wrongly",
        "",
        "## Right migrations",
        "",
        "The last column is the largest share of its limit that the loss trajectory came to.",
        "",
        "| migration | part | ranks | passed | of the limit |",
        "|---|---|---|---|---|",
        *(f"{_start(line)} {line.closest} |" for line in right),
        "",
        "## Wrong migrations",
        "",
        "| mistake | part | ranks | rejected | expected | failed |",
        "|---|---|---|---|---|---|",
        *(f"{_start(line)} {', '.join(line.case.caught_by)} | {line.failed} |" for line in wrong),
        "",
        "## Mistakes of the original itself",
        "",
        "| program | part | ranks | undecided |",
        "|---|---|---|---|",
        *map(_start, undecided),
        "",
        "## Checkpoints (check R)",
        "",
        "| what is saved and loaded | loss of the resumed run against the whole one |",
        "|---|---|",
        *(f"| {what} | {measured} |" for what, measured, _ in resumed),
        "",
    ]
    return "\n".join(text)


def _start(line: Line) -> str:
    return f"| {line.case.name} | {line.part} | {line.case.world} | {line.good} of {len(line.reports)} |"


def _count(some: list[Line]) -> str:
    return f"{sum(len(line.reports) for line in some)} checks of {len(some)} kinds"


def _bad(some: list[Line]) -> int:
    return sum(len(line.reports) - line.good for line in some)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--right", type=int, default=10, help="how often each right migration is checked")
    parser.add_argument("--wrong", type=int, default=2, help="how often each wrong one is")
    given = parser.parse_args()
    parts = (("calibration", RIGHT, CALIBRATION), ("hold-out", RIGHT_HOLD_OUT, HOLD_OUT), ("later", RIGHT_LATER, []))
    right = list(lines([(part, case) for part, cases, _ in parts for case in cases], given.right))
    wrong = list(lines([(part, case) for part, _, cases in parts for case in cases], given.wrong))
    undecided = list(lines([("undecided", case) for case in UNDECIDED], given.wrong))
    resumed = checkpoints()
    RESULTS.write_text(page(right, wrong, undecided, resumed), encoding="utf-8")
    fine = all(line.as_expected for line in (*right, *wrong, *undecided)) and all(ok for _, _, ok in resumed)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
