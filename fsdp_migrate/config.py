"""`[tool.fsdp-migrate]` of the nearest pyproject.toml: the options of a project, named as on the command line."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
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


def _from(least: int) -> Callable[[object], int]:
    def number(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"must be a whole number from {least} up")
        return value

    return number


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
    if text := _text(value):
        from .verify.expectation import expectation

        expectation(text)
    return text


def _launcher(value: object) -> str:
    text = _text(value)
    if text and "{probe}" not in text:
        raise ValueError("must have {probe} where the program goes")
    return text


def _one_of(*choices: str) -> Callable[[object], str]:
    def choice(value: object) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return str(value)

    return choice


def _version(value: object) -> tuple[int, int]:
    parts = _text(value).split(".") if isinstance(value, str) else []
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        raise ValueError('must be a version such as "2.6"')
    version = (int(parts[0]), int(parts[1]))
    if version < OLDEST_TORCH:
        raise ValueError("must be 2.6 or newer: older versions lack what FSDP2 code needs")
    return version


def _option(valid: Callable[[object], object], default: object) -> Any:
    """What makes a valid value of an option, or raises ValueError, and what it is when nobody sets it."""
    return field(default=default, metadata={"valid": valid})


@dataclass(frozen=True, slots=True)
class Config:
    """One field an option; what pyproject.toml sets is overridden by the command line."""

    paths: tuple[str, ...] = _option(_strings, ())
    """What `rewrite` and `check` look at when no PATH is given, relative to pyproject.toml."""
    exclude: tuple[str, ...] = _option(_strings, ())
    select: tuple[str, ...] = _option(_codes, ())
    ignore: tuple[str, ...] = _option(_codes, ())
    strict: bool = _option(_flag, False)
    jobs: int = _option(_from(0), 0)
    """0: as many as there are processors, when the work is worth it."""
    no_cache: bool = _option(_flag, False)
    """Whether `check` looks at everything again, and keeps nothing for its next run."""
    quiet: bool = _option(_flag, False)
    output_format: str = _option(_one_of(*OUTPUT_FORMATS), "full")
    torch_version: tuple[int, int] = _option(_version, OLDEST_TORCH)
    checkpoint_format: str = _option(_one_of(*CHECKPOINT_FORMATS), "keep")
    read_fsdp1_files: bool = _option(_flag, False)
    """Whether the output reads the flat pieces that each rank of FSDP1 saved of a LOCAL_STATE_DICT."""
    script: str = _option(_text, "")
    """What `check --run-gpus N` runs when no SCRIPT is given, relative to pyproject.toml."""
    module: str = _option(_text, "")
    """The same as `python -m` takes it; it comes before `script`."""
    args: tuple[str, ...] = _option(_strings, ())
    run_gpus: int = _option(_from(0), 0)
    run_cpus: int = _option(_from(0), 0)
    dry_run_world: int = _option(_from(0), 0)
    """Compare the structure as on so many ranks, in one process."""
    baseline: str = _option(_text, "")
    steps: int = _option(_from(1), 20)
    floor_runs: int = _option(_from(1), 1)
    """How often the original is run again from weights one ulp away."""
    init: str = _option(_one_of("auto", "copy", "as-is"), "auto")
    """Whether the rewritten program starts from the original's weights."""
    resume_args: tuple[str, ...] = _option(_words, ())
    """What makes the program go on from its checkpoint; empty not to try."""
    from_baseline_checkpoint: bool = _option(_flag, False)
    """Whether the rewritten program must go on from the original's checkpoint too."""
    seed: int | None = _option(_from(0), None)
    """Seeds random, NumPy and torch in every process of a parity run; None leaves that to the program."""
    launcher: str = _option(_launcher, "")
    """What starts a parity run instead of torchrun, with `{probe}` where the command goes."""
    nnodes: int = _option(_from(1), 1)
    node_rank: int | None = _option(_from(0), None)
    rdzv_endpoint: str = _option(_text, "")
    torchrun_args: tuple[str, ...] = _option(_words, ())
    hang_timeout: float = _option(_seconds, 120.0)
    """Seconds without a record from any rank; `start_timeout` before the first step."""
    start_timeout: float = _option(_seconds, 600.0)
    python: str = _option(_text, "")
    """What runs the programs; empty for the Python of this program."""
    spawns: str = _option(_one_of("auto", "yes", "no"), "auto")
    """Whether the program starts its own processes."""
    redirect: str = _option(_one_of("auto", "on", "off"), "auto")
    """Whether CUDA calls go to the CPU."""
    fresh: bool = _option(_flag, False)
    """Whether the original is run although an earlier check has its records."""
    keep: str = _option(_text, "")
    """Where a parity run leaves its records; empty to leave none."""
    allow: tuple[str, ...] = _option(_checks, ())
    """Checks of a parity run that may fail, because their difference is meant."""
    expect: str = _option(_expectation, "")
    """What is stated of an upgrade: `same`, or `loss within 2%`; empty where a migration is checked."""
    html: str = _option(_text, "")
    """Where a parity run writes its page; empty for none."""

    @property
    def kinds_of_run(self) -> tuple[str, ...]:
        """The options that ask for a run, as on the command line."""
        return tuple(f"--{name.replace('_', '-')}" for name in KINDS_OF_RUN if getattr(self, name))

    def override(self, **options: object) -> Config:
        """With the options of the command line; None is one that was not given. Raises `ConfigError`."""
        given = {name: value for name, value in options.items() if value is not None}
        return replace(self, **{name: _valid(name.replace("_", "-"), value, "--") for name, value in given.items()})


_VALIDATORS: Mapping[str, Callable[[object], Any]] = {
    each.name.replace("_", "-"): each.metadata["valid"] for each in fields(Config)
}


def load(folder: Path) -> Config:
    """The configuration that holds in a folder. Raises `ConfigError`."""
    for candidate in (folder, *folder.parents):
        file = candidate / "pyproject.toml"
        if file.is_file():
            return _read(file)
    return Config()


def parse(table: Mapping[str, object], where: str) -> Config:
    """A configuration from the keys of `[tool.fsdp-migrate]`. Raises `ConfigError`, which names `where`."""
    unknown = sorted(set(table) - set(_VALIDATORS))
    if unknown:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; valid keys are {', '.join(sorted(_VALIDATORS))}")
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
        return _VALIDATORS[key](value)
    except ValueError as error:
        raise ConfigError(f"{where}{key} {error}, not {value!r}") from None
