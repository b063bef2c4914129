"""H0: the same optimizers with the same settings for the same parameters. S4: as much optimizer state."""

from __future__ import annotations

from fsdp_migrate.verify.checks.comparison import Comparison, paired, relative, short
from fsdp_migrate.verify.observation import Optimizer
from fsdp_migrate.verify.report import CheckRow, Mark, shorten
from fsdp_migrate.verify.thresholds import BYTES_TOLERANCE

_VALUE = 60
"""Characters of a setting: some are lists of a thousand names."""
_TITLE = "optimizers and their settings"


def hyper_parameters(comparison: Comparison) -> list[CheckRow]:
    """Compared exactly, parameter by parameter and step by step: a bf16 loss curve does not show a learning rate that
    is 1 % off."""
    mine, theirs = comparison.original.optimizers, comparison.rewritten.optimizers
    if not mine:
        return [CheckRow("H0", _TITLE, Mark.NOT_AVAILABLE, detail="no optimizer was seen in the original")]
    step, detail = _first_difference(mine, theirs)
    names = ", ".join(sorted({optimizer.cls for optimizer in mine}))
    count = sum(len(optimizer.key) for optimizer in mine)
    mark = Mark.FAIL if detail else Mark.PASS
    return [CheckRow("H0", _TITLE, mark, f"{names}, {count} parameters", "equal", detail, step)]


def _first_difference(mine: tuple[Optimizer, ...], theirs: tuple[Optimizer, ...]) -> tuple[int | None, str]:
    if len(mine) != len(theirs):
        return None, f"{len(mine)} optimizers stepped in the original, {len(theirs)} in the rewritten"
    for number, (optimizer, other) in enumerate(paired(mine, theirs)):
        if other is None:
            return None, _other_parameters(optimizer, theirs[number])
        if optimizer.cls != other.cls:
            return None, f"{optimizer.cls} became {other.cls}"
        if len(optimizer.hyper) != len(other.hyper):
            return None, f"{optimizer.cls} made {len(optimizer.hyper)} steps, then {len(other.hyper)}"
        step, detail = _settings_difference(optimizer, other)
        if detail:
            return step, detail
    return None, ""


def _other_parameters(mine: Optimizer, theirs: Optimizer) -> str:
    lost = sorted(set(mine.key) - set(theirs.key))
    strangers = [name for name in theirs.key if name.startswith("?")]
    if strangers:
        return (
            f"{len(strangers)} tensors of the rewritten {theirs.cls} are not parameters of a sharded model: "
            "was the optimizer built before fully_shard()?"
        )
    more = sorted(set(theirs.key) - set(mine.key))
    return f"the optimizers hold other parameters: lost {_some(lost)}, gained {_some(more)}"


def _settings_difference(mine: Optimizer, theirs: Optimizer) -> tuple[int | None, str]:
    last: object = None
    for step in range(len(mine.hyper)):
        now = (id(mine.hyper[step]), id(theirs.hyper[step]))
        if now == last:  # neither changed since the step before
            continue
        last = now
        a, b = mine.settings(step), theirs.settings(step)
        for name in mine.key:
            keys = [key for key in a[name].keys() | b[name].keys() if a[name].get(key) != b[name].get(key)]
            if keys:
                key = sorted(keys)[0]
                values = (shorten(str(settings.get(key)), _VALUE) for settings in (a[name], b[name]))
                change = f"{key} {' -> '.join(values)}"
                return step, f"{change} for {short(name)} at step {step}"
    return None, ""


def state_bytes(comparison: Comparison) -> list[CheckRow]:
    """Bytes over all ranks: none when the optimizer holds dead parameters, W times as many when nothing is sharded."""
    title = "optimizer state bytes"
    if not comparison.original.optimizers:
        return [CheckRow("S4", title, Mark.NOT_AVAILABLE, detail="no optimizer was seen in the original")]
    before = sum(optimizer.state_bytes for optimizer in comparison.original.optimizers)
    after = sum(optimizer.state_bytes for optimizer in comparison.rewritten.optimizers)
    different = relative(before, after) > BYTES_TOLERANCE if before or after else False
    detail = f"optimizer state over all ranks went from {before} to {after} bytes" if different else ""
    mark = Mark.FAIL if different else Mark.PASS
    limit = f"{BYTES_TOLERANCE:.0%}"
    return [CheckRow("S4", title, mark, f"{before} -> {after}", limit, detail)]


def _some(names: list[str]) -> str:
    shown = ", ".join(short(name) for name in names[:3])
    return (shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")) or "none"
