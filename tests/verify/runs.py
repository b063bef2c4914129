"""Observed runs of the programs in tests/verify/programs, made once a session and shared by the tests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdp_migrate.verify.checks.comparison import Comparison
from fsdp_migrate.verify.checks.initial import differs, init_problem
from fsdp_migrate.verify.observation import Observation
from fsdp_migrate.verify.outcome import outcome
from fsdp_migrate.verify.records import read_run
from fsdp_migrate.verify.report import Failure, ParityReport
from fsdp_migrate.verify.run import compare_observations
from fsdp_migrate.verify.watch import Watched
from tests.forks import AT_ONCE, Job, run
from tests.verify.trees import make_tree

STEPS = 8
PROBE = ("-m", "fsdp_migrate.probe")


@dataclass(frozen=True)
class Case:
    """One comparison: options of both programs, and the mistake of the FSDP2 one ("" for a right migration).

    `caught_by` are the checks of which at least each must fail.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    mutation: str = ""
    caught_by: tuple[str, ...] = ()
    world: int = 2
    repeat: int = 0
    """Another one draws other weights, other data and another floor."""
    scripts: tuple[str, str] = ("original.py", "migrated.py")
    extra: tuple[str, ...] = ()
    """For the probe."""

    @property
    def base(self) -> str:
        """What identifies the original's run."""
        return json.dumps([self.options, self.world, self.repeat, self.scripts], sort_keys=True)


@dataclass(frozen=True)
class Program:
    """One run of one program of tests/verify/programs on two ranks; `extra` goes to the probe."""

    script: str
    options: str
    extra: tuple[str, ...]

    @classmethod
    def of(cls, script: str, *extra: str, **options: object) -> Program:
        return cls(script, json.dumps(options, sort_keys=True), extra)

    @property
    def slug(self) -> str:
        return hashlib.sha1(repr(self).encode()).hexdigest()[:12]


class Fleet:
    """Makes all runs that the cases need, each original and floor once, in one process."""

    def __init__(self, home: Path, more: Mapping[str, str] | None = None) -> None:
        """`more` are files by name that lie beside the programs."""
        self._home = home
        self._more = more or {}
        self._done: set[str] = set()
        self._jobs: list[Job] = []

    def observe(self, cases: list[Case]) -> None:
        """Run what is missing: originals, floors (which also save their initial weights), and the FSDP2 programs."""
        for case in cases:
            before, after = case.scripts
            self._plan(case, "original", before, [])
            moved = ["--perturb", str(1 + case.repeat), "--save-init", str(self._weights(case))]
            self._plan(case, "floor", before, moved)
            self._plan(case, "rewritten", after, [])
        self._go()
        for case in cases:
            if self._transplants(case):
                self._plan(case, "transplanted", case.scripts[1], ["--load-init", str(self._weights(case))])
        self._go()

    def programs(self, wanted: list[Program]) -> None:
        """Run what is missing of these."""
        for program in wanted:
            place = self._home / program.slug
            if not place.exists():
                self._put(place, program.script, json.loads(program.options), list(program.extra), 2)
        self._go()

    def resumed(self, whole: list[Program]) -> None:
        """Run what is missing of these, and then each again, where it left its checkpoint, with `--resume`."""
        self.programs(whole)
        for program in whole:
            place = self._home / program.slug
            if not (place / "resumed").exists():
                probe = ["--out", str(place / "resumed"), *program.extra, program.script, "--resume"]
                self._jobs.append(Job([*PROBE, *probe], str(place / "tree"), 2, str(place / "log")))
        self._go()

    def seen_resumed(self, program: Program) -> Observation:
        self.resumed([program])
        result = outcome_of(program.script, self._home / program.slug, 2, "resumed")
        assert not isinstance(result, Failure), result
        return result

    def seen(self, program: Program) -> Observation:
        """What one program did. A run that failed is an AssertionError."""
        self.programs([program])
        result = outcome_of(program.script, self._home / program.slug, 2)
        assert not isinstance(result, Failure), result
        return result

    def report(self, case: Case) -> ParityReport:
        """Compare. A run that failed is an AssertionError with its output."""
        self.observe([case])
        rewritten = self._seen(case, "rewritten")
        as_found = None
        if self._transplants(case):
            as_found, rewritten = rewritten, self._seen(case, "transplanted")
        original, floor = self._seen(case, "original"), self._seen(case, "floor")
        return compare_observations(Comparison(original, rewritten, (floor,), STEPS, as_found))

    def _transplants(self, case: Case) -> bool:
        original, rewritten = self._result(case, "original"), self._result(case, "rewritten")
        if isinstance(original, Failure) or isinstance(rewritten, Failure):
            return False
        return differs(original, rewritten) and not init_problem(original, rewritten)

    def _seen(self, case: Case, which: str) -> Observation:
        result = self._result(case, which)
        assert not isinstance(result, Failure), f"{result.message}\n{result.traceback}\n{result.log}"
        return result

    def _result(self, case: Case, which: str) -> Observation | Failure:
        return outcome_of(which, self._place(case, which), case.world)

    def _weights(self, case: Case) -> Path:
        return self._place(case, "floor") / "weights"

    def _key(self, case: Case, which: str) -> str:
        return case.base + which + (case.mutation if which in ("rewritten", "transplanted") else "")

    def _place(self, case: Case, which: str) -> Path:
        return self._home / hashlib.sha1(self._key(case, which).encode()).hexdigest()[:12]

    def _plan(self, case: Case, which: str, script: str, extra: list[str]) -> None:
        key = self._key(case, which)
        if key in self._done:
            return
        self._done.add(key)
        options = {**case.options, "seed": case.repeat, "mutation": case.mutation if script == case.scripts[1] else ""}
        self._put(self._place(case, which), script, options, [*case.extra, *extra], case.world)

    def _put(self, place: Path, script: str, options: dict[str, Any], extra: list[str], world: int) -> None:
        tree = make_tree(place / "tree", **options)
        for name, text in self._more.items():
            (tree / name).write_text(text, encoding="utf-8")
        probe = ["--out", str(place / "records"), "--max-steps", str(STEPS), *extra, script]
        self._jobs.append(Job([*PROBE, *probe], str(tree), world, str(place / "log")))

    def _go(self) -> None:
        if not self._jobs:
            return
        # Temporary files of its own: a checkout that lies in /tmp is outside of a run's places all the same.
        temporary = self._home / "tmp"
        temporary.mkdir(exist_ok=True)
        run(self._jobs, AT_ONCE, env={"TMPDIR": str(temporary)})
        self._jobs.clear()


def outcome_of(name: str, place: Path, world: int, records: str = "records") -> Observation | Failure:
    """What a run that lies in a folder came to."""
    log = place / "log"
    text = log.read_text(errors="replace") if log.exists() else ""
    return outcome(name, Watched(0, read_run(place / records), None, {}, text), world)
