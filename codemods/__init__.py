"""The rules, in the order in which they are asked.

1. Constructor calls come first, then the definitions that change with them.
2. Then what is done with such a model: accumulation, clipping, state dicts.
3. The class itself comes last, because a constructor call or a static method holds its name too.

What no rule claims is reported by `leftover`. `TRAPS` change nothing: they find what trains otherwise, or breaks, once
the program is FSDP2. `CONTRACT` is for any FSDP2 code: what `fully_shard` needs and does not check.
"""

from __future__ import annotations

from typing import Any

from codemods import (
    class_check,
    clip_grad_norm,
    grad_scaler,
    gradient_collectives,
    local_clipping,
    model_state,
    module_attribute,
    no_sync,
    optimizer_state,
    parameter_groups,
    policy_definition,
    precision_definition,
    state_dict,
    summon_full_params,
    wrap,
)
from codemods.vocabulary import Check, Rule

RULES: tuple[Rule[Any], ...] = (
    wrap.RULE,
    policy_definition.RULE,
    precision_definition.RULE,
    no_sync.RULE,
    clip_grad_norm.RULE,
    local_clipping.RULE,
    module_attribute.RULE,
    grad_scaler.RULE,
    summon_full_params.RULE,
    state_dict.RULE,
    model_state.RULE,
    optimizer_state.RULE,
    class_check.RULE,
)

TRAPS: tuple[Check, ...] = (
    gradient_collectives.CHECK,
    parameter_groups.CHECK,
)

CONTRACT: tuple[Check, ...] = ()
