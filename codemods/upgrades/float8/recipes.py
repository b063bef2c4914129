"""What torchao calls its ways to scale, and where they are."""

from __future__ import annotations

from codemods.api import Import

FLOAT8 = Import("torchao", "float8")
TENSORWISE = "tensorwise"
RECIPES = (TENSORWISE, "rowwise", "rowwise_with_gw_hp")
