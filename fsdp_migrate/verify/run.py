"""A whole parity check: run the original, the rewritten, the floor; compare; judge."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from fsdp_migrate.verify.accounting import Reported, account
from fsdp_migrate.verify.catalogue import asks_for_seed, catalogue
from fsdp_migrate.verify.checks import checks_for
from fsdp_migrate.verify.checks.comparison import Comparison, loss_differences, running_max, worst_floor
from fsdp_migrate.verify.checks.initial import differs, init_problem
from fsdp_migrate.verify.checks.losses import loss_limits
from fsdp_migrate.verify.independence import independence, moved_arguments
from fsdp_migrate.verify.kept import kept_runs
from fsdp_migrate.verify.launch import redirects
from fsdp_migrate.verify.observation import Observation
from fsdp_migrate.verify.preflight import look, missing_program, objection
from fsdp_migrate.verify.report import CheckRow, Curves, Failure, Mark, ParityReport, Verdict, verdict_of, with_allowed
from fsdp_migrate.verify.request import CheckRequest, Init
from fsdp_migrate.verify.resume import checkpoint_rows
from fsdp_migrate.verify.runner import CouldNotRun, Plan, Progress, Runner, cannot_write


def run_check(
    request: CheckRequest, progress: Progress | None = None, reported: Reported | None = None
) -> ParityReport:
    """Run both programs and say whether they train the same. `reported` tells which lines the rewrite reported.

    Everything that goes wrong with the programs is in the report; only KeyboardInterrupt passes through, after all
    processes are gone.
    """
    began = time.monotonic()
    try:
        with a_home(request) as home:
            report = _checked(request, home, progress, reported)
    except CouldNotRun as error:
        report = _no_report(request, error.failure)
    return replace(report, seconds=time.monotonic() - began)


@contextmanager
def a_home(request: CheckRequest) -> Iterator[Path]:
    """Where the runs of a check lie: kept if that was asked for, else gone afterwards. Raises CouldNotRun."""
    try:
        home = request.keep or Path(tempfile.mkdtemp(prefix="fsdp-migrate-"))
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CouldNotRun(cannot_write(request.keep or Path(tempfile.gettempdir()), error)) from error
    try:
        yield home
    finally:
        if request.keep is None:
            shutil.rmtree(home, ignore_errors=True)


def compare_observations(
    comparison: Comparison,
    allow: tuple[str, ...] = (),
    more_rows: tuple[CheckRow, ...] = (),
    read_back: Mapping[str, tuple[str, str]] | None = None,
) -> ParityReport:
    """Judge runs that were made before. No process is started."""
    rows: tuple[CheckRow, ...] = tuple(row for check in checks_for(comparison) for row in check(comparison))
    order = list(catalogue())
    rows += more_rows
    rows = tuple(sorted(rows, key=lambda row: order.index(row.id)))
    rows = independence(read_back or {}, with_allowed(rows, allow))
    verdict, reason = verdict_of(rows)
    return ParityReport(
        verdict=verdict,
        reason=reason,
        is_upgrade=comparison.expect is not None,
        rows=rows,
        curves=_curves(comparison),
        warnings=_warnings(comparison, rows),
        world_size=comparison.original.world,
        steps=min(comparison.original.steps, default=0),
        torch_version=str(comparison.original.flags.get("torch", "")),
    )


def _checked(request: CheckRequest, home: Path, progress: Progress | None, reported: Reported | None) -> ParityReport:
    missing = missing_program(request)
    if missing is not None:
        raise CouldNotRun(missing)
    with closing(Runner(request, home, progress)) as runner:
        runner.prepare()  # torch is imported there while it is looked for here
        machine = look(request.python, request.env)
        problem = objection(request, machine)
        if problem is not None:
            raise CouldNotRun(problem)
        runner.kept = kept_runs(request, machine.torch)
        comparison = _run_both(request, runner)
        if not wants_seed(request, comparison):
            return _judged(request, runner, comparison, reported)
        request = runner.request = replace(request, seed=_OWN_SEED)
        runner.kept = kept_runs(request, machine.torch)
        report = _judged(request, runner, _run_both(request, runner), reported)
        return replace(report, limits=(*report.limits, _SEEDED))


def _judged(request: CheckRequest, runner: Runner, comparison: Comparison, reported: Reported | None) -> ParityReport:
    if wants_more_floors(comparison, request.allow):
        more = (runner.run(_floor(len(comparison.floors) + n)) for n in range(_MORE_FLOORS))
        comparison = replace(comparison, floors=(*comparison.floors, *more))
    accounted = account(comparison.original.uses, request.tree("original"), request.tree("rewritten"), reported)
    resumed = checkpoint_rows(request, runner, comparison)
    report = compare_observations(comparison, request.allow, (accounted, *resumed), runner.read_back)
    moved = moved_arguments(request.args, request.trees)
    warnings = report.warnings + tuple(f"{arg}: each run had its own, in its copy of the tree" for arg in moved)
    warnings += tuple(
        f"{path} was linked to and not copied (too large): a program that overwrites it overwrites yours"
        for path in runner.linked
    )
    warnings += tuple(
        f"the run `{name}` was made twice: native code, mostly gloo's, ended a rank in the first"
        for name in runner.repeated
    )
    limits = limits_of(request)
    if runner.reused and runner.kept is not None:
        limits += (f"The original was not run: its records are those of {runner.kept.date}; --fresh runs it again",)
    return replace(report, device=request.device, limits=limits, warnings=warnings)


def _run_both(request: CheckRequest, runner: Runner) -> Comparison:
    """The original, the rewritten, the floor, and the rewritten again if it has to start from other weights."""
    keeps = request.keep_files or request.resume_args is not None
    original = runner.run(Plan("original", "original", leave_scratch=keeps))
    rewritten = runner.run(Plan("rewritten", "rewritten", leave_scratch=keeps))
    transplant = wants_transplant(request.init, original, rewritten)
    weights = (runner.home / "weights").resolve() if transplant else None
    floors = tuple(
        runner.run(_floor(n, weights if n == 0 else None)) for n in range(max(request.floor_runs, int(transplant)))
    )
    stated = request.checkpoint_format, request.expect
    if not transplant:
        return Comparison(original, rewritten, floors, request.steps, None, *stated)
    transplanted = runner.run(Plan("rewritten", "rewritten, transplanted", load_init=weights))
    return Comparison(original, transplanted, floors, request.steps, rewritten, *stated)


def _floor(number: int, save_init: Path | None = None) -> Plan:
    """The original once more, from other weights each time, one ulp away."""
    return Plan("original", f"floor {number + 1}", perturb=number + 1, save_init=save_init)


_OWN_SEED = 0
_AT_START = frozenset({"N0", "N1"})
_SEEDED = (
    f"The original does not seed itself, and differs from run to run: all was run again as with --seed {_OWN_SEED}"
)


def wants_seed(request: CheckRequest, comparison: Comparison) -> bool:
    """Whether all is to be run again from a seed: the original begins otherwise each time, and nothing else is wrong.

    Not where several nodes are called apart: each would have to see it at the same moment.
    """
    if request.seed is not None or request.joins_others:
        return False
    rows = _rows(comparison, request.allow)
    at_start = [row for row in rows if row.id in _AT_START and row.mark is Mark.INCONCLUSIVE]
    return not any(row.mark is Mark.FAIL for row in rows) and any(asks_for_seed(row.detail) for row in at_start)


def _rows(comparison: Comparison, allow: tuple[str, ...]) -> tuple[CheckRow, ...]:
    return with_allowed(tuple(row for check in checks_for(comparison) for row in check(comparison)), allow)


_TRAJECTORIES = frozenset({"N4", "N4n"})
_MORE_FLOORS = 2


def wants_more_floors(comparison: Comparison, allow: tuple[str, ...] = ()) -> bool:
    """Whether one floor run says too little: the trajectories differ, and nothing that could be the cause.

    A real T5 in fp32 went 1.4 times over the limit that one floor run gave, and three gave ten times that limit: its
    weights ended as far from the original's (7.7e-5) as the floor's own. None of the 147 wrong migrations of the tests
    shows in the trajectories alone. The files go with the weights.
    """
    if len(comparison.floors) != 1:
        return False
    failed = {row.id for row in _rows(comparison, allow) if row.mark is Mark.FAIL}
    return bool(failed & _TRAJECTORIES) and failed <= {*_TRAJECTORIES, "F"}


def wants_transplant(init: Init, original: Observation, rewritten: Observation) -> bool:
    """Whether the rewritten program has to be run again from the original's initial weights."""
    if init == "as-is" or not differs(original, rewritten):
        return False
    return init == "copy" or not init_problem(original, rewritten)


def _no_report(request: CheckRequest, failure: Failure) -> ParityReport:
    return ParityReport(
        Verdict.COULD_NOT_RUN, failure.message, failure=failure, world_size=request.world_size, device=request.device
    )


def limits_of(request: CheckRequest) -> tuple[str, ...]:
    """What a run on this kind of machine cannot show."""
    if request.device != "cpu":
        return ()
    limits = ["CPU parity does not verify NCCL, memory or speed"]
    if redirects(request):
        limits.append(
            "CUDA calls were redirected to the CPU: torch.compile, CPU offload, streams, CUDA's random numbers and "
            "custom CUDA kernels were not exercised"
        )
    return tuple(limits)


def _warnings(comparison: Comparison, rows: tuple[CheckRow, ...]) -> tuple[str, ...]:
    paths = sorted({*comparison.original.outside, *comparison.rewritten.outside})
    dearer = tuple(f"{row.detail} ({row.title}: {row.value})" for row in rows if row.warns)
    return dearer + tuple(f"the program wrote outside its scratch copy: {path}" for path in paths)


def _curves(comparison: Comparison) -> Curves:
    a, b = comparison.original, comparison.rewritten
    floor = worst_floor(comparison)
    limits = loss_limits(comparison, running_max(floor))
    return Curves(
        original_loss=_per_step(a),
        rewritten_loss=_per_step(b),
        loss_difference=_worst_per_step(a, loss_differences(a, b)),
        floor_difference=_worst_per_step(a, floor),
        loss_limit=_worst_per_step(a, limits),
        original_norm=_norms(a),
        rewritten_norm=_norms(b),
        original_seconds=a.seconds,
        rewritten_seconds=b.seconds,
        original_peak=a.peaks,
        rewritten_peak=b.peaks,
    )


def _norms(run: Observation) -> tuple[float, ...]:
    """Of the first optimizer; as it saw them where the norm before clipping is not known."""
    if not run.optimizers:
        return ()
    first = run.optimizers[0]
    return tuple(
        seen if before is None else before for before, seen in zip(first.norms_before, first.norms, strict=True)
    )


def _per_step(run: Observation) -> tuple[float, ...]:
    """Mean over ranks and micro-batches of each step."""
    sums: dict[int, list[float]] = {}
    for loss in run.losses:
        sums.setdefault(loss.step, []).extend(loss.values)
    return tuple(sum(values) / len(values) for _, values in sorted(sums.items()))


def _worst_per_step(run: Observation, differences: list[float]) -> tuple[float, ...]:
    found: dict[int, float] = {}
    for loss, difference in zip(run.losses, differences, strict=False):
        found[loss.step] = max(difference, found.get(loss.step, 0.0))
    return tuple(value for _, value in sorted(found.items()))
