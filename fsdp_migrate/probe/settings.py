"""What the parent asks of the probe, in one picklable value that also reaches `mp.spawn` children."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """One observed run.

    `out` is the directory for the records. `max_steps` is the number of optimizer steps after which the run is stopped
    (0: never). `perturb` moves every initial weight by one unit in the last place, signs drawn from this number.
    `save_init` and `load_init` name a directory for the transplant of initial weights. `scratch` is the directory the
    run may write into; a write elsewhere is reported. `processes` is how many ranks this machine runs. `seed` seeds
    Python, numpy and torch in every process before the program begins.
    """

    out: Path
    max_steps: int = 0
    redirect: bool = False
    perturb: int | None = None
    save_init: Path | None = None
    load_init: Path | None = None
    scratch: Path | None = None
    trees: tuple[Path, ...] = ()
    processes: int = 1
    dry_run_world: int | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The user's program: a script path, or a module name when `as_module`."""

    name: str
    as_module: bool
    args: tuple[str, ...]


def parse(argv: list[str]) -> tuple[Settings, Target]:
    """Read the probe's own command line: `--out DIR [options] [-m] target args…`."""
    parser = argparse.ArgumentParser(prog="python -m fsdp_migrate.probe", allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--max-steps", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--redirect", action="store_true", help="run CUDA calls on the CPU and NCCL calls on gloo")
    parser.add_argument("--perturb", type=int, default=None)
    parser.add_argument("--save-init", type=Path, default=None)
    parser.add_argument("--load-init", type=Path, default=None)
    parser.add_argument("--scratch", type=Path, default=None)
    parser.add_argument("--tree", dest="trees", type=Path, action="append", default=[], help="what the copy stands for")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--dry-run-world", type=int, default=None)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--program-args", type=json.loads, default=None, help="the program's arguments as JSON")
    parser.add_argument("-m", dest="as_module", action="store_true")
    parser.add_argument("target")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    given = parser.parse_args(argv)
    given.trees = tuple(given.trees)
    settings = Settings(**{each.name: getattr(given, each.name) for each in fields(Settings)})
    return settings, Target(given.target, given.as_module, (*(given.program_args or ()), *given.args))
