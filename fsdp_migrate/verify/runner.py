"""Makes one observed run after another, each in its own scratch copy."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from fsdp_migrate.verify.forks import Process, Server
from fsdp_migrate.verify.independence import own_arguments
from fsdp_migrate.verify.kept import Kept
from fsdp_migrate.verify.launch import Run, can_fork, command, environment, preload, probe_words, redirects
from fsdp_migrate.verify.observation import Observation, merge
from fsdp_migrate.verify.outcome import SPACE_HINT, outcome, worth_a_retry
from fsdp_migrate.verify.records import RankRecords, read_run
from fsdp_migrate.verify.report import Failure
from fsdp_migrate.verify.request import CheckRequest, Side
from fsdp_migrate.verify.scratch import copy_tree
from fsdp_migrate.verify.watch import Watched, launch, watch

Progress = Callable[[str, int, int], None]
"""Called with the name of the run ("original", "rewritten", "floor 1"), the steps made, and the steps wanted."""

_WRITTEN_BEFORE = "written-before.json"
"""Read by fsdp_migrate/probe/outside.py."""
_SHARED_DISK_S = 30.0


class CouldNotRun(Exception):
    """A run gave nothing to compare; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def cannot_write(place: Path, error: OSError) -> Failure:
    """What is said when the parent side itself has no room or no right to write."""
    return Failure("preflight", f"{place} could not be written: {error}", SPACE_HINT)


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
    """Runs plans below `home`. `linked` collects the files that were too large to copy, `repeated` the names of the
    runs that were made once more."""

    request: CheckRequest
    home: Path
    progress: Progress | None = None
    linked: tuple[Path, ...] = ()
    repeated: tuple[str, ...] = ()
    kept: Kept | None = None
    reused: tuple[str, ...] = ()
    """The runs that were not made, because an earlier check has their records."""
    read_back: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Files outside of all copies that one run has written and a later one read: the two runs."""
    _written: dict[str, str] = field(default_factory=dict)
    _server: Server | None = None
    _without_server: bool = False

    def run(self, plan: Plan) -> Observation:
        """Raises CouldNotRun. A run in which native code, mostly gloo's, ended a rank is made once more."""
        kept = self.kept if plan.side == "original" and plan.save_init is None and not plan.more_args else None
        records = kept.records(plan.name) if kept is not None else None
        if records is not None:
            self.reused += (plan.name,)
            result = merge(records)
        else:
            result = self._made(plan)
            if kept is not None:
                kept.keep(plan.name, self.place(plan.name) / "records")
        self.read_back |= {path: (self._written[path], plan.name) for path in result.read_back if path in self._written}
        self._written |= {path: plan.name for path in result.written if path not in self._written}
        return result

    def _made(self, plan: Plan) -> Observation:
        watched = self._attempt(plan)
        if worth_a_retry(watched) and not self.request.joins_others:  # the other nodes would not know of it
            self.repeated += (plan.name,)
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
        mine = self._of_this_node
        own = own_arguments(self.request.args + plan.more_args, self.request.trees, place / f"scratch{mine}")
        request = replace(self.request, args=own)
        run = Run(
            plan.side,
            plan.name,
            place / "records",
            place / f"scratch{mine}",
            plan.perturb,
            plan.save_init,
            plan.load_init,
        )
        try:
            _clear(run)
            run.out.mkdir(parents=True, exist_ok=True)
            (run.out / _WRITTEN_BEFORE).write_text(json.dumps(sorted(self._written)))
            self.linked = tuple(sorted({*self.linked, *copy_tree(request.tree(plan.side), run.scratch)}))
            if plan.over is not None:
                for scratch in sorted(self.place(plan.over).glob("scratch*")):  # each node's ranks wrote their own
                    _lay_over(scratch, run.scratch)
        except OSError as error:
            raise CouldNotRun(cannot_write(place, error)) from error
        log = run.out / f"output{mine}.log"
        watched = watch(
            lambda: self._start(request, run, log),
            run.out,
            log,
            request.hang_timeout,
            request.start_timeout,
            self._tell(plan.name),
        )
        if request.joins_others:
            watched = replace(watched, ranks=_all_nodes(run.out, request.ranks))
        if not plan.leave_scratch:
            shutil.rmtree(run.scratch, ignore_errors=True)
        return watched

    def prepare(self) -> None:
        """Start the server, which imports while something else is done; where there can be one."""
        request = self.request
        if self._server is not None or self._without_server or not can_fork(request, "original"):
            return
        words = json.dumps([redirects(request), request.world_size, preload(request)])
        try:
            self._server = Server(request.python, environment(request), words, self.home / "server.log")
        except OSError:
            self._without_server = True

    def close(self) -> None:
        """End the server, if there is one."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _start(self, request: CheckRequest, run: Run, log: Path) -> Process:
        """From the server where that can be, else through torchrun, a launcher, or plain Python."""
        cwd, env = run.scratch / request.cwd, environment(request)
        if can_fork(request, run.side):
            self.prepare()
            try:
                if self._server is not None:
                    return self._server.start(probe_words(request, run), cwd, env, log, request.world_size)
            except OSError:
                self.close()
                self._without_server = True
        return launch(command(request, run), cwd, env, log)

    @property
    def _of_this_node(self) -> str:
        """Ends the names of what several nodes would otherwise write into one shared folder together."""
        if not self.request.joins_others:
            return ""
        return f"-{socket.gethostname() if self.request.node_rank is None else self.request.node_rank}"

    def _tell(self, name: str) -> Callable[[int], None] | None:
        if self.progress is None:
            return None
        tell, wanted = self.progress, self.request.steps
        return lambda steps: tell(name, steps, wanted)


def _clear(run: Run) -> None:
    """Remove what an earlier run of the name left. No rank of the new one writes before every node got this far."""
    shutil.rmtree(run.scratch, ignore_errors=True)
    stale = [*run.out.glob("rank-*"), *(run.save_init.glob("root-*") if run.save_init is not None else ())]
    for path in stale:
        with contextlib.suppress(FileNotFoundError):  # another node was quicker
            path.unlink()


def _all_nodes(out: Path, ranks: int) -> list[RankRecords]:
    """The records of all nodes, as soon as each rank's end has come over the shared file system."""
    deadline = time.monotonic() + _SHARED_DISK_S
    while len(list(out.glob("rank-*.done"))) < ranks and time.monotonic() < deadline:
        time.sleep(0.1)
    return read_run(out)


def _lay_over(source: Path, target: Path) -> None:
    """Copy what another run wrote; the program's own files stay those of the tree."""
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(exist_ok=True)
        elif not place.exists():
            shutil.copy2(path, place)
