"""What is built from a model's parameters before they are sharded, and whether it can stand below or be rebound."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from codemods.api import Context

from .counting import is_only_counted
from .moving import Moving, moving
from .outward import Early, early_holders
from .rebinding import Rebinding, keeps_lists, rebinding

__all__ = ["Early", "Rebinding", "Relocation", "early_holders", "is_only_counted", "keeps_lists", "relocations"]


@dataclass(frozen=True)
class Relocation:
    """What is done with what holds the parameters early: its statements move below the wrap, or it is rebound there."""

    early: Early
    moving: Moving | None
    rebinding: tuple[tuple[cst.Call, Rebinding], ...] | None

    @property
    def is_possible(self) -> bool:
        return self.moving is not None or self.rebinding is not None


def relocations(ctx: Context, call: cst.Call, kept: Collection[Path]) -> tuple[Relocation, ...]:
    """One for each function in which something from above a constructor call holds parameters.

    Nothing moves in the files that are kept.
    """
    return tuple(_relocation(early, kept) for early in early_holders(ctx, call))


def _relocation(early: Early, kept: Collection[Path]) -> Relocation:
    moved = moving(early) if early.file.path not in kept else None
    rebound = rebinding(early, kept) if moved is None else None
    return Relocation(early, moved, tuple(rebound) if rebound is not None else None)
