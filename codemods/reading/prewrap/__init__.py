"""What is built from a model's parameters before they are sharded, and whether it can stand below or be rebound."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context

from .moving import moving
from .outward import Early, early_holders
from .rebinding import Rebinding, keeps_lists, rebinding

__all__ = [
    "Early",
    "Rebinding",
    "early_holders",
    "is_settled",
    "keeps_lists",
    "moving",
    "rebinding",
]


def is_settled(ctx: Context, call: cst.Call) -> bool:
    """Whether everything from above the constructor call can be moved below it, or rebound."""
    return all(moving(early) is not None or rebinding(early) is not None for early in early_holders(ctx, call))
