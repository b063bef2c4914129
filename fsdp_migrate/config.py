"""`[tool.fsdp-migrate]` of the nearest pyproject.toml: the options of a project, named as on the command line."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

OUTPUT_FORMATS = ("full", "concise", "json", "sarif", "github", "junit", "markdown")
CHECKPOINT_FORMATS = ("keep", "dcp")
OLDEST_TORCH = (2, 6)
KINDS_OF_RUN = ("run_gpus", "run_cpus", "dry_run_world")
NOT_IN_A_DRY_RUN = frozenset(
    {
        *("--steps", "--fresh", "--floor-runs", "--init", "--resume-args", "--from-baseline-checkpoint"),
        "--expect",
        *("--nnodes", "--node-rank", "--rdzv-endpoint", "--torchrun-args", "--launcher"),
    }
)
CHECKS = (
    *("A", "E0", "H0", "S1", "S2", "S3", "S4", "N0", "N0b", "N1", "N2", "N3", "G0", "G1", "N4", "N4n"),
    *("F", "R", "C", "X0", "X1"),
)
"""The checks of a parity run that may be allowed to fail. Not V0: without it nothing was compared."""


class ConfigError(Exception):
    """An option that is not one, or has a value it cannot have. The message says which are valid."""


@dataclass(frozen=True, slots=True)
class Config:
    """One field an option; what pyproject.toml sets is overridden by the command line."""

    paths: tuple[str, ...] = ()
    """What `rewrite` and `check` look at when no PATH is given, relative to pyproject.toml."""
    exclude: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    strict: bool = False
    jobs: int = 0
    """0: as many as there are processors, when the work is worth it."""
    no_cache: bool = False
    """Whether `check` looks at everything again, and keeps nothing for its next run."""
    quiet: bool = False
    output_format: str = "full"
    torch_version: tuple[int, int] = OLDEST_TORCH
    checkpoint_format: str = "keep"
    read_fsdp1_files: bool = False
    """Whether the output reads the flat pieces that each rank of FSDP1 saved of a LOCAL_STATE_DICT."""
    script: str = ""
    """What `check --run-gpus N` runs when no SCRIPT is given, relative to pyproject.toml."""
    module: str = ""
    """The same as `python -m` takes it; it comes before `script`."""
    args: tuple[str, ...] = ()
    run_gpus: int = 0
    run_cpus: int = 0
    dry_run_world: int = 0
    """Compare the structure as on so many ranks, in one process."""
    baseline: str = ""
    steps: int = 20
    floor_runs: int = 1
    """How often the original is run again from weights one ulp away."""
    init: str = "auto"
    """Whether the rewritten program starts from the original's weights."""
    resume_args: tuple[str, ...] = ()
    """What makes the program go on from its checkpoint; empty not to try."""
    from_baseline_checkpoint: bool = False
    """Whether the rewritten program must go on from the original's checkpoint too."""
    seed: int | None = None
    """Seeds random, NumPy and torch in every process of a parity run; None leaves that to the program."""
    launcher: str = ""
    """What starts a parity run instead of torchrun, with `{probe}` where the command goes."""
    nnodes: int = 1
    node_rank: int | None = None
    rdzv_endpoint: str = ""
    torchrun_args: tuple[str, ...] = ()
    hang_timeout: float = 120.0
    """Seconds without a record from any rank; `start_timeout` before the first step."""
    start_timeout: float = 600.0
    python: str = ""
    """What runs the programs; empty for the Python of this program."""
    spawns: str = "auto"
    """Whether the program starts its own processes."""
    redirect: str = "auto"
    """Whether CUDA calls go to the CPU."""
    fresh: bool = False
    """Whether the original is run although an earlier check has its records."""
    keep: str = ""
    """Where a parity run leaves its records; empty to leave none."""
    allow: tuple[str, ...] = ()
    """Checks of a parity run that may fail, because their difference is meant."""
    expect: str = ""
    """What is stated of an upgrade: `same`, or `loss within 2%`; empty where a migration is checked."""
    html: str = ""
    """Where a parity run writes its page; empty for none."""

    @property
    def kinds_of_run(self) -> tuple[str, ...]:
        """The options that ask for a run, as on the command line."""
        return tuple(f"--{name.replace('_', '-')}" for name in KINDS_OF_RUN if getattr(self, name))

    def override(self, **options: object) -> Config:
        """With the options of the command line; None is one that was not given. Raises `ConfigError`."""
        given = {name: value for name, value in options.items() if value is not None}
        return replace(self, **{name: _valid(name.replace("_", "-"), value, "--") for name, value in given.items()})


def load(folder: Path) -> Config:
    """The configuration that holds in a folder. Raises `ConfigError`."""
    for candidate in (folder, *folder.parents):
        file = candidate / "pyproject.toml"
        if file.is_file():
            return _read(file)
    return Config()


def parse(table: Mapping[str, object], where: str) -> Config:
    """A configuration from the keys of `[tool.fsdp-migrate]`. Raises `ConfigError`, which names `where`."""
    unknown = sorted(set(table) - set(_PARSERS))
    if unknown:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; valid keys are {', '.join(sorted(_PARSERS))}")
    return Config(**{key.replace("-", "_"): _valid(key, value, f"{where}: ") for key, value in table.items()})


def _read(file: Path) -> Config:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        document = tomllib.loads(file.read_bytes().decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None
    tool = document.get("tool", {})
    table = tool.get("fsdp-migrate", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: [tool.fsdp-migrate] must be a table")
    config = parse(table, f"{file} [tool.fsdp-migrate]")
    relative_to = file.parent
    return replace(
        config,
        paths=tuple(str(relative_to / path) for path in config.paths),
        script=str(relative_to / config.script) if config.script else "",
        baseline=_baseline_from(relative_to, config.baseline),
    )


def _baseline_from(folder: Path, baseline: str) -> str:
    return str(folder / baseline) if baseline and not baseline.startswith("git:") else baseline


def _valid(key: str, value: object, where: str) -> Any:
    try:
        return _PARSERS[key](value)
    except ValueError as error:
        raise ConfigError(f"{where}{key} {error}, not {value!r}") from None


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise ValueError("must be a list of strings")
    return tuple(value)


def _codes(value: object) -> tuple[str, ...]:
    """Rules as `FM101`, or the start of their codes, as `FM1`; with commas, several."""
    codes = tuple(code.strip() for item in _strings(value) for code in item.split(",") if code.strip())
    if not all(code.startswith("FM") and (code[2:].isdigit() or code == "FM") for code in codes):
        raise ValueError("must name rules such as FM101, or groups such as FM1")
    return codes


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _number(value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"must be a whole number from {least} up")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
        raise ValueError("must be a number of seconds above 0")
    return float(value)


def _words(value: object) -> tuple[str, ...]:
    """A list of strings, or one string as a shell would split it."""
    return tuple(shlex.split(value)) if isinstance(value, str) else _strings(value)


def _checks(value: object) -> tuple[str, ...]:
    checks = _strings(value)
    if not set(checks) <= set(CHECKS):
        raise ValueError(f"must name checks of a parity run: {', '.join(CHECKS)}")
    return checks


def _expectation(value: object) -> str:
    from .verify.expectation import expectation

    expectation(text := _text(value))
    return text


def _launcher(value: object) -> str:
    text = _text(value)
    if text and "{probe}" not in text:
        raise ValueError("must have {probe} where the program goes")
    return text


def _one_of(value: object, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}")
    return str(value)


def _version(value: object) -> tuple[int, int]:
    parts = _text(value).split(".") if isinstance(value, str) else []
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        raise ValueError('must be a version such as "2.6"')
    version = (int(parts[0]), int(parts[1]))
    if version < OLDEST_TORCH:
        raise ValueError("must be 2.6 or newer: older versions lack what FSDP2 code needs")
    return version


_PARSERS: Mapping[str, Callable[[object], object]] = {
    "paths": _strings,
    "exclude": _strings,
    "select": _codes,
    "ignore": _codes,
    "strict": _flag,
    "jobs": lambda value: _number(value, 0),
    "no-cache": _flag,
    "quiet": _flag,
    "output-format": lambda value: _one_of(value, OUTPUT_FORMATS),
    "torch-version": _version,
    "checkpoint-format": lambda value: _one_of(value, CHECKPOINT_FORMATS),
    "read-fsdp1-files": _flag,
    "script": _text,
    "module": _text,
    "args": _strings,
    "run-gpus": lambda value: _number(value, 0),
    "run-cpus": lambda value: _number(value, 0),
    "dry-run-world": lambda value: _number(value, 0),
    "baseline": _text,
    "steps": lambda value: _number(value, 1),
    "floor-runs": lambda value: _number(value, 1),
    "init": lambda value: _one_of(value, ("auto", "copy", "as-is")),
    "resume-args": _words,
    "from-baseline-checkpoint": _flag,
    "seed": lambda value: _number(value, 0),
    "launcher": _launcher,
    "nnodes": lambda value: _number(value, 1),
    "node-rank": lambda value: _number(value, 0),
    "rdzv-endpoint": _text,
    "torchrun-args": _words,
    "hang-timeout": _seconds,
    "start-timeout": _seconds,
    "python": _text,
    "spawns": lambda value: _one_of(value, ("auto", "yes", "no")),
    "redirect": lambda value: _one_of(value, ("auto", "on", "off")),
    "fresh": _flag,
    "keep": _text,
    "allow": _checks,
    "expect": lambda value: _text(value) if value == "" else _expectation(value),
    "html": _text,
}
assert set(_PARSERS) == {field.name.replace("_", "-") for field in fields(Config)}, "one parser an option"
