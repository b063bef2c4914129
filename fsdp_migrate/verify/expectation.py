"""What an upgraded program may differ by from the FSDP2 program that it was made of, as the user states it."""

from __future__ import annotations

import re
from dataclasses import dataclass

SAME = "same"
_WITHIN = re.compile(r"loss within (\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True, slots=True)
class Expectation:
    """`loss` is the largest relative difference of the last losses; None where the training has to be the same."""

    loss: float | None = None

    @property
    def text(self) -> str:
        return SAME if self.loss is None else f"within {self.loss:.3g}"


def expectation(text: str) -> Expectation:
    """Read `same` or `loss within 2%`. Raises ValueError."""
    if text == SAME:
        return Expectation()
    found = _WITHIN.fullmatch(text)
    if found is None:
        raise ValueError("must be 'same', or 'loss within N%'")
    return Expectation(float(found[1]) / 100)
