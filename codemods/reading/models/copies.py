"""What makes a copy of a module, with parameters of its own."""

from __future__ import annotations

import libcst as cst

from codemods.api import Context

_COPIERS = frozenset({"copy.deepcopy", "torch.optim.swa_utils.AveragedModel"})
_AVERAGES = "timm.utils.ModelEma"


def copies(ctx: Context, call: cst.Call) -> bool:
    """`copy.deepcopy(net)`, `AveragedModel(net)`, `ModelEmaV2(net)`."""
    made = ctx.dotted(call.func) or ""
    return made in _COPIERS or made.startswith(_AVERAGES)
