"""The result of a parity check, as plain data for the renderers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fsdp_migrate.verify.catalogue import next_step


class Verdict(str, Enum):
    """The answer to: does the rewritten program train the same?"""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    COULD_NOT_RUN = "COULD NOT RUN"


class Mark(str, Enum):
    """The outcome of one check."""

    PASS = "PASS"
    FAIL = "FAIL"
    ALLOWED = "ALLOWED"
    """Failed, and the caller said that this difference is intended."""
    INFO = "INFO"
    NOT_AVAILABLE = "NOT AVAILABLE"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One line of the table. `value` is what was measured and `limit` what is still accepted, both ready to print.
    `warns`: the detail is worth a warning although nothing failed. `items` is the whole of a list that the detail cuts
    short, for programs."""

    id: str
    title: str
    mark: Mark
    value: str = ""
    limit: str = ""
    detail: str = ""
    first_bad_step: int | None = None
    warns: bool = False
    items: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Curves:
    """What was seen at each step, over all ranks: mean loss, gradient norm before clipping, seconds, and peak
    bytes of the fullest rank (None without CUDA). `loss_difference` and `floor_difference` are the largest relative
    difference of any rank's loss against the original's, `loss_limit` the largest that check N4 accepts by then."""

    original_loss: tuple[float, ...] = ()
    rewritten_loss: tuple[float, ...] = ()
    loss_difference: tuple[float, ...] = ()
    floor_difference: tuple[float, ...] = ()
    loss_limit: tuple[float, ...] = ()
    original_norm: tuple[float, ...] = ()
    rewritten_norm: tuple[float, ...] = ()
    original_seconds: tuple[float, ...] = ()
    rewritten_seconds: tuple[float, ...] = ()
    original_peak: tuple[float | None, ...] = ()
    rewritten_peak: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run gave nothing to compare: which side, which rank began it, its traceback, and what to do."""

    side: str
    message: str
    hint: str
    rank: int | None = None
    traceback: str = ""
    log: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """What was checked, for whom the report is shown to later. The commits are those of the trees, with "+" where files
    differ from them; empty where there is no git."""

    program: str = ""
    command: str = ""
    original: str = ""
    rewritten: str = ""
    versions: str = ""
    date: str = ""

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """(name, value) of what is known."""
        names = ("program", "command", "original", "rewritten", "versions", "date")
        return tuple((name, value) for name in names if (value := str(getattr(self, name))))


@dataclass(frozen=True, slots=True)
class ParityReport:
    """The whole answer. `limits` says what this kind of run cannot show, `warnings` what the user should know."""

    verdict: Verdict
    reason: str
    rows: tuple[CheckRow, ...] = ()
    curves: Curves = Curves()
    failure: Failure | None = None
    limits: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    world_size: int = 0
    device: str = ""
    steps: int = 0
    torch_version: str = ""
    seconds: float = 0.0
    setting: Setting = Setting()
    is_upgrade: bool = False
    """Whether both programs are FSDP2, and the second is an upgrade of the first."""

    @property
    def next_step(self) -> str:
        """What to do now, in one line; empty where the failure says it."""
        if self.failure is not None:
            return ""
        if self.verdict is Verdict.PASS:
            return "Keep this report with the migration, and train with it. On GPUs: check --run-gpus N."
        decisive = decisive_row(self.rows)
        return next_step(decisive.id, decisive.detail) if decisive is not None else ""

    @property
    def exit_code(self) -> int:
        """0 parity, 1 no parity, 2 could not run or inconclusive."""
        return {Verdict.PASS: 0, Verdict.FAIL: 1}.get(self.verdict, 2)

    def row(self, check: str) -> CheckRow:
        """The row of one check. Raises KeyError."""
        for row in self.rows:
            if row.id == check:
                return row
        raise KeyError(check)

    @property
    def failed(self) -> tuple[str, ...]:
        """Ids of the checks that failed, in report order."""
        return tuple(row.id for row in self.rows if row.mark is Mark.FAIL)


_TELLING = (
    "V0",
    "A",
    "E0",
    "H0",
    "N0",
    "N0b",
    "S1",
    "S2",
    "N1",
    "N2",
    "N3",
    "G0",
    "G1",
    "N4",
    "N4n",
    "X1",
    "X0",
    "F",
    "R",
    "C",
)
"""Which of several failures is the headline: what would cause others first; counts and bytes, not named here, last."""


def _telling(row: CheckRow) -> int:
    return _TELLING.index(row.id) if row.id in _TELLING else len(_TELLING)


def decisive_row(rows: tuple[CheckRow, ...]) -> CheckRow | None:
    """The row that the verdict rests on, when it is none to be glad of."""
    failed = [row for row in rows if row.mark is Mark.FAIL]
    if failed:
        return min(failed, key=_telling)
    return next((row for row in rows if row.mark in (Mark.INCONCLUSIVE, Mark.NOT_AVAILABLE)), None)


def shorten(text: str, length: int) -> str:
    """For people; JSON has the whole."""
    return text if len(text) <= length else text[: length - 2].rstrip(" ,") + " …"


def verdict_of(rows: tuple[CheckRow, ...]) -> tuple[Verdict, str]:
    """A single failure fails the whole; then, what could not be looked at keeps it from passing."""
    failed = [row for row in rows if row.mark is Mark.FAIL]
    if failed:
        first = decisive_row(rows) or failed[0]
        more = [row.id for row in failed if row is not first]
        others = f" (also {', '.join(more)})" if more else ""
        return Verdict.FAIL, f"{first.id} {first.title}: {first.detail or first.value}{others}"
    blind = [row for row in rows if row.mark in (Mark.INCONCLUSIVE, Mark.NOT_AVAILABLE)]
    if blind:
        return Verdict.INCONCLUSIVE, f"{blind[0].id} {blind[0].title}: {blind[0].detail}"
    if not any(row.mark is Mark.PASS for row in rows):
        return Verdict.INCONCLUSIVE, "no check looked at anything"
    return Verdict.PASS, "the rewritten program trains as the original does, as far as this run can show"


def with_allowed(rows: tuple[CheckRow, ...], allow: tuple[str, ...]) -> tuple[CheckRow, ...]:
    """Failures of the allowed checks become ALLOWED, and say so. Not V0: it says that nothing was seen."""
    from dataclasses import replace

    return tuple(
        replace(row, mark=Mark.ALLOWED, detail=f"allowed by --allow {row.id}: {row.detail}")
        if row.mark is Mark.FAIL and row.id in allow and row.id != "V0"
        else row
        for row in rows
    )
