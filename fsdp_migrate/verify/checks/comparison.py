"""What every check looks at, and the arithmetic they share."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fsdp_migrate.verify.expectation import Expectation
from fsdp_migrate.verify.observation import Loss, Observation, Optimizer, Sketches
from fsdp_migrate.verify.thresholds import Precision, coarsest, loss_resolution


@dataclass(frozen=True, slots=True)
class Comparison:
    """The two sides, and the floor runs: the original again from weights moved by one unit in the last place.

    `as_found` is the rewritten run before initial weights were transplanted into it; None when they were not.
    `checkpoint_format` is what the rewrite was asked for: with "dcp" a file may have become a checkpoint of all ranks.
    `expect` is what was stated of an upgrade: the original is an FSDP2 program then.
    """

    original: Observation
    rewritten: Observation
    floors: tuple[Observation, ...]
    steps_wanted: int
    as_found: Observation | None = None
    checkpoint_format: str = "keep"
    expect: Expectation | None = None

    @property
    def precision(self) -> Precision:
        named = [unit.param_dtype for unit in self.original.units] + [unit.reduce_dtype for unit in self.original.units]
        return coarsest(named + ([self.original.autocast] if self.original.autocast else []))

    def floor(self, measure: Callable[[Observation, Observation], float]) -> float:
        """The largest value of `measure(original, floor run)`; 0.0 without a floor run."""
        return max((measure(self.original, run) for run in self.floors), default=0.0)


def relative(a: float, b: float) -> float:
    """|a - b| against the larger; 0 when both are the same non-number, inf when one is."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return 0.0 if a == b or (math.isnan(a) and math.isnan(b)) else math.inf
    return abs(a - b) / max(abs(a), abs(b), 1e-12)


def loss_differences(a: Observation, b: Observation) -> list[float]:
    """The largest relative difference of any rank's loss, for each backward that both made."""
    return [_worst(x, y) for x, y in zip(a.losses, b.losses, strict=False)]


def worst_floor(comparison: Comparison) -> list[float]:
    """The largest loss difference of any floor run, for each backward that all made."""
    streams = [loss_differences(comparison.original, run) for run in comparison.floors]
    return [max(values) for values in zip(*streams, strict=False)]


def first_step_loss(a: Observation, b: Observation) -> float:
    """The largest relative loss difference before the first update that a loss led to."""
    pairs = [(x, y) for x, y in zip(a.losses, b.losses, strict=False) if x.step == a.losses[0].step]
    return max((_worst(x, y) for x, y in pairs), default=0.0)


def loss_resolutions(run: Observation) -> list[float]:
    """For each backward, how far apart two losses may be because their dtype has no number between."""
    return [max(loss_resolution(value, run.loss_dtypes) for value in loss.values) for loss in run.losses]


def paired(mine: tuple[Optimizer, ...], theirs: tuple[Optimizer, ...]) -> list[tuple[Optimizer, Optimizer | None]]:
    """Each optimizer with its counterpart: the one that owns the same, in order where several do (a program may make a
    new one over the same model)."""
    left: dict[tuple[str, ...], list[Optimizer]] = defaultdict(list)
    for optimizer in theirs:
        left[optimizer.key].append(optimizer)
    return [(optimizer, left[optimizer.key].pop(0) if left[optimizer.key] else None) for optimizer in mine]


def running_max(values: Iterable[float]) -> list[float]:
    out: list[float] = []
    for value in values:
        out.append(max(value, out[-1]) if out else value)
    return out


def tensor_distances(a: Sketches, b: Sketches, tiny: float = 0.0) -> dict[str, float]:
    """Estimated distance of each tensor, relative to its norm; inf when one side lacks it.

    With `tiny`, a tensor whose root mean square is below `tiny` times that of all is measured against that instead.
    """
    numel = sum(sketch.numel for sketch in a.values())
    overall = math.sqrt(sum(sketch.squares for sketch in a.values()) / numel) if numel else 0.0
    out: dict[str, float] = {}
    for name in sorted(a.keys() | b.keys()):
        left, right = a.get(name), b.get(name)
        if left is None or right is None:
            out[name] = math.inf
            continue
        scale = max(left.norm, right.norm, tiny * overall * math.sqrt(left.numel))
        distance = left.distance(right)
        out[name] = 0.0 if distance == 0.0 else distance / max(scale, 1e-30)
    return out


def worst(distances: dict[str, float]) -> tuple[str, float]:
    """(name, value) of the largest; ("", 0.0) of nothing."""
    return max(distances.items(), key=lambda item: item[1], default=("", 0.0))


def short(name: str) -> str:
    """`0:blocks.1.norm.weight` without the number of the root, when there is only one."""
    return name.removeprefix("0:")


def some(names: list[str]) -> str:
    return ", ".join(short(name) for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def scientific(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}"


def _worst(x: Loss, y: Loss) -> float:
    return max((relative(a, b) for a, b in zip(x.values, y.values, strict=False)), default=0.0)
