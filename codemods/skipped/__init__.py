"""Which files are not rewritten, and why: one reason a file."""

from __future__ import annotations

from codemods.api import Check

from . import fairscale, fsdp_subclass, generated, side_by_side, two_imports, vendored

SKIPPED: tuple[Check, ...] = (
    side_by_side.CHECK,
    fsdp_subclass.CHECK,
    vendored.CHECK,
    generated.CHECK,
    fairscale.CHECK,
    two_imports.CHECK,
)
