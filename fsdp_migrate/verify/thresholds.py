"""How large a difference may be, by the precision the program computes in.

Where they come from: 50 AdamW steps of a small transformer on 1, 2 and 4 ranks, fp32 and bf16. Right migrations stay
within 1.4 times the floor (the original against itself with weights moved by one unit in the last place); the weakest
mistake the trajectory alone had to see was 13.9 times. Frozen before the last third of the test cases was written; see
tests/verify/test_mutations.py for what was measured on either part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-8, "float16": 2.0**-10}
_SIGNIFICAND = {"float64": 53, "float32": 24, "bfloat16": 8, "float16": 11}
LOSS_ULPS = 2.0
"""Units in the last place of the loss's own dtype by which two right runs may always differ: each may round the other
way."""
TRAJECTORY_FACTOR = 8.0
GRADIENT_FACTOR = 8.0
FIRST_LOSS_FACTOR = 4.0
BYTES_TOLERANCE = 0.05
SLOWER, BIGGER = 1.10, 1.05
"""Step time and peak memory above these times the original's are said; they fail nothing."""
TINY_GRADIENT = 1e-3
"""A parameter whose gradient is this small beside the whole (by element) is measured against the whole: its own
gradient is rounding noise, such as that of an attention key's bias."""


@dataclass(frozen=True, slots=True)
class Precision:
    """The coarsest number format the original computes or reduces in."""

    name: str

    @property
    def eps(self) -> float:
        return _EPS.get(self.name, 2.0**-23)

    @property
    def low(self) -> bool:
        return self.eps > 2.0**-20

    def first_loss(self, floor: float) -> float:
        return max(FIRST_LOSS_FACTOR * floor, self.eps / 16) if self.low else 64 * self.eps

    def first_norm(self, floor: float) -> float:
        return max(FIRST_LOSS_FACTOR * floor, 1e-3) if self.low else 1e-5

    def gradient(self, floor: float) -> float:
        return GRADIENT_FACTOR * max(floor, self.eps)

    def trajectory(self, floor: float) -> float:
        return TRAJECTORY_FACTOR * max(floor, self.eps / 16 if self.low else self.eps)

    @property
    def widest_floor(self) -> float:
        """A floor above this at step 0 says that the runs differ by more than rounding."""
        return 5e-2 if self.low else 1e-4


def loss_resolution(value: float, dtypes: tuple[str, ...]) -> float:
    """`LOSS_ULPS` units in the last place of a loss, against the loss itself: 5.1e-3 is one unit of a bf16 0.77."""
    bits = min((_SIGNIFICAND.get(dtype, 24) for dtype in dtypes), default=24)
    if not math.isfinite(value) or value == 0.0:
        return 0.0
    return float(LOSS_ULPS * 2.0 ** (math.frexp(value)[1] - bits) / abs(value))


def coarsest(names: list[str]) -> Precision:
    """The precision of a program that uses these dtypes (`float32`, `torch.bfloat16`, `bfloat16+float32`)."""
    flat = [part.removeprefix("torch.") for name in names for part in name.split("+")]
    return Precision(max(flat or ["float32"], key=lambda name: _EPS.get(name, 0.0)))
