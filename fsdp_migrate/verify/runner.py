"""Makes one observed run after another, each in its own scratch copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fsdp_migrate.verify.launch import Run, command, environment
from fsdp_migrate.verify.observation import Observation
from fsdp_migrate.verify.outcome import outcome, worth_a_retry
from fsdp_migrate.verify.report import Failure
from fsdp_migrate.verify.request import CheckRequest, Side
from fsdp_migrate.verify.scratch import copy_tree
from fsdp_migrate.verify.watch import Watched, watch

Progress = Callable[[str, int, int], None]
"""Called with the name of the run ("original", "rewritten", "floor 1"), the steps made, and the steps wanted."""


class CouldNotRun(Exception):
    """A run gave nothing to compare; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: `name` is what the user sees. `leave_scratch` keeps the working directory, and `over` is another run
    whose files (checkpoints) are laid over the copy of the tree."""

    side: Side
    name: str
    perturb: int | None = None
    save_init: Path | None = None
    load_init: Path | None = None
    more_args: tuple[str, ...] = ()
    leave_scratch: bool = False
    over: str | None = None


@dataclass(slots=True)
class Runner:
    """Runs plans below `home`. `linked` collects the files that were too large to copy."""

    request: CheckRequest
    home: Path
    progress: Progress | None = None
    linked: tuple[Path, ...] = ()

    def run(self, plan: Plan) -> Observation:
        """Raises CouldNotRun. A run that gloo aborted for no reason of the program's is made once more."""
        watched = self._attempt(plan)
        if worth_a_retry(watched):
            watched = self._attempt(plan)
        ranks = 1 if self.request.dry_run_world is not None else self.request.ranks
        result = outcome(plan.name, watched, ranks)
        if isinstance(result, Failure):
            raise CouldNotRun(result)
        return result

    def place(self, name: str) -> Path:
        """Where the run of that name keeps its records and its scratch copy."""
        return (self.home / name.replace(" ", "-").replace(",", "")).resolve()

    def _attempt(self, plan: Plan) -> Watched:
        place = self.place(plan.name)
        shutil.rmtree(place, ignore_errors=True)
        request = replace(self.request, args=self.request.args + plan.more_args)
        run = Run(
            plan.side,
            plan.name,
            place / "records",
            place / "scratch",
            plan.perturb,
            plan.save_init,
            plan.load_init,
        )
        self.linked = tuple(sorted({*self.linked, *copy_tree(request.tree(plan.side), run.scratch)}))
        if plan.over is not None:
            _lay_over(self.place(plan.over) / "scratch", run.scratch)
        watched = watch(
            command(request, run),
            run.scratch / request.cwd,
            environment(request),
            run.out,
            request.hang_timeout,
            request.start_timeout,
            self._tell(plan.name),
        )
        if not plan.leave_scratch:
            shutil.rmtree(run.scratch, ignore_errors=True)
        return watched

    def _tell(self, name: str) -> Callable[[int], None] | None:
        if self.progress is None:
            return None
        tell, wanted = self.progress, self.request.steps
        return lambda steps: tell(name, steps, wanted)


def _lay_over(source: Path, target: Path) -> None:
    """Copy what another run wrote; the program's own files stay those of the tree."""
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(exist_ok=True)
        elif not place.exists():
            shutil.copy2(path, place)
