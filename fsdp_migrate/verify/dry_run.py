"""Structure and communication at any world size, in one process: cheap enough to run before every launch."""

from __future__ import annotations

from dataclasses import replace

from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.checks.optimizers import hyper_parameters
from fsdp_migrate.verify.checks.structure import communication, dtypes, groups
from fsdp_migrate.verify.observation import Observation, Unit
from fsdp_migrate.verify.preflight import look, missing_program, objection
from fsdp_migrate.verify.report import CheckRow, Failure, Mark, ParityReport, Verdict, verdict_of, with_allowed
from fsdp_migrate.verify.request import CheckRequest
from fsdp_migrate.verify.run import a_home
from fsdp_migrate.verify.runner import CouldNotRun, Plan, Progress, Runner

_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
_STEPS = 3


def dry_run(request: CheckRequest, world: int, progress: Progress | None = None) -> ParityReport:
    """Run both programs as rank 0 of `world` ranks on the fake backend, and compare what does not depend on values."""
    asked = replace(request, dry_run_world=world, device="cpu", steps=_STEPS, nodes=1, launcher=None)
    try:
        problem = missing_program(asked) or objection(asked, look(asked.python, asked.env))
        if problem is not None:
            raise CouldNotRun(problem)
        with a_home(asked) as home:
            runner = Runner(asked, home, progress)
            original, rewritten = runner.run(Plan("original", "original")), runner.run(Plan("rewritten", "rewritten"))
    except CouldNotRun as error:
        return _nothing(error.failure, world)
    return judge(Comparison(original, rewritten, (), _STEPS), request.allow, world)


def judge(comparison: Comparison, allow: tuple[str, ...], world: int) -> ParityReport:
    """Compare what a dry run shows."""
    checks = (_seen, hyper_parameters, groups, dtypes, communication, _memory)
    rows = with_allowed(tuple(row for check in checks for row in check(comparison)), allow)
    verdict, reason = verdict_of(rows)
    if verdict is Verdict.PASS:
        reason = f"the same structure and communication on {world} ranks; no number was compared"
    return ParityReport(
        verdict,
        reason,
        rows,
        world_size=world,
        device="the fake backend",
        steps=min(comparison.original.steps, default=0),
        limits=("a dry run moves no data: it shows structure and communication, and no value",),
    )


def _seen(comparison: Comparison) -> list[CheckRow]:
    before, after = comparison.original, comparison.rewritten
    value = f"{before.fsdp1} FSDP1 / {after.fsdp2} FSDP2 groups"
    if not before.fsdp1:
        return [
            CheckRow("V0", "something was compared", Mark.INCONCLUSIVE, value, "", "the original has no FSDP1 group")
        ]
    if not after.fsdp2 or after.fsdp1:
        return [CheckRow("V0", "something was compared", Mark.FAIL, value, "", "the rewritten program is not FSDP2")]
    return [CheckRow("V0", "something was compared", Mark.PASS, value)]


def _memory(comparison: Comparison) -> list[CheckRow]:
    before, after = (_readable(_estimate(run)) for run in (comparison.original, comparison.rewritten))
    return [
        CheckRow(
            "M1",
            "estimated peak memory of a rank",
            Mark.INFO,
            f"{before} -> {after}",
            "",
            "an estimate: sharded weights, gradients and optimizer state, and the two largest groups gathered; "
            "without activations and what the allocator wastes",
        )
    ]


def _readable(size: float) -> str:
    for unit in ("KiB", "MiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} GiB"


def _estimate(run: Observation) -> float:
    sharded = sum(2 * unit.padded_numel / unit.shard_world * _width(unit.storage_dtype) for unit in run.units)
    gathered = sorted((_gathered(unit) for unit in run.units), reverse=True)
    return sharded + sum(optimizer.state_bytes for optimizer in run.optimizers) + sum(gathered[:2])


def _gathered(unit: Unit) -> float:
    """Bytes of the unit's whole weights and gradients in the compute dtype."""
    return 2.0 * unit.padded_numel * _width(unit.param_dtype)


def _width(dtypes: str) -> int:
    return max(_BYTES.get(dtype, 4) for dtype in dtypes.split("+"))


def _nothing(failure: Failure, world: int) -> ParityReport:
    return ParityReport(Verdict.COULD_NOT_RUN, failure.message, failure=failure, world_size=world)
