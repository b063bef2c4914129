"""A whole tensor's fingerprint, made of what the ranks wrote of their pieces; see fsdp_migrate/probe/sketch.py."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fsdp_migrate.verify.records import Record


@dataclass(slots=True)
class Sketch:
    """A whole tensor's statistics, summed over the ranks that own its pieces. `heads` are each rank's first values."""

    sums: list[float]
    squares: float = 0.0
    total: float = 0.0
    owned: float = 0.0
    nonfinite: int = 0
    numel: int = 0
    replicas: int = 1
    heads: dict[int, tuple[float, ...]] = field(default_factory=dict)

    def add(self, piece: Record, share: float) -> None:
        """Count one piece, which as many ranks hold as make its share."""
        self.sums = [a + b * share for a, b in zip(self.sums, piece["s"], strict=True)]
        self.squares += piece["sq"] * share
        self.total += piece["sum"] * share
        self.owned += piece["n"] * share
        self.nonfinite += piece["nonfinite"]

    @property
    def whole(self) -> bool:
        """Whether the pieces that were seen make up the tensor."""
        return abs(self.owned - self.numel) < 0.5

    @property
    def norm(self) -> float:
        return math.sqrt(max(0.0, self.squares))

    def distance(self, other: Sketch) -> float:
        """Estimate of the 2-norm of the difference of the two tensors; inf where they cannot be compared."""
        if self.numel != other.numel or self.nonfinite or other.nonfinite:
            return math.inf
        return math.sqrt(sum((a - b) ** 2 for a, b in zip(self.sums, other.sums, strict=True)) / len(self.sums))
