"""The rules, in the order in which they are asked.

1. Constructor calls come first, then the definitions that change with them.
2. Then what is done with such a model: accumulation, clipping, state dicts.
3. The class itself comes last, because a constructor call or a static method holds its name too.

What no rule claims is reported by `leftover`. `TRAPS` change nothing: they find what trains otherwise, or breaks, once
the program is FSDP2. `LEFT_ALONE` say which files are not rewritten, and why. `CONTRACT` is for any FSDP2 code: what
`fully_shard` needs and does not check.
"""

from __future__ import annotations

from typing import Any

from codemods import (
    checkpoint_format,
    class_as_value,
    class_by_name,
    class_check,
    class_layout,
    class_names,
    clip_grad_norm,
    comm_hook,
    copied_model,
    dcp_functions,
    fairscale,
    freed_parameters,
    fsdp_subclass,
    fsdp_units,
    full_precision_eval,
    generated,
    grad_scaler,
    gradient_collectives,
    groups_by_name,
    index_writes,
    late_writes,
    local_clipping,
    low_precision_gradients,
    manual_wrap,
    method_by_name,
    model_state,
    module_attribute,
    no_sync,
    optimizer_order,
    optimizer_state,
    parameter_counts,
    parameter_groups,
    parameter_ids,
    parameters_after_forward,
    policy_definition,
    precision_definition,
    refusing_optimizers,
    shard_values,
    sharded_optimizer_load,
    side_by_side,
    state_dict,
    summon_full_params,
    tied_weights,
    two_imports,
    unsynced_grad,
    unwrapped_root,
    vendored,
    wrap,
    wrapper_names,
)
from codemods.contract import CONTRACT
from codemods.vocabulary import Check, Rule

__all__ = ["CONTRACT", "LEFT_ALONE", "RULES", "TRAPS"]

RULES: tuple[Rule[Any], ...] = (
    wrap.RULE,
    manual_wrap.RULE,
    optimizer_order.RULE,
    policy_definition.RULE,
    precision_definition.RULE,
    no_sync.RULE,
    clip_grad_norm.RULE,
    local_clipping.RULE,
    parameters_after_forward.RULE,
    module_attribute.RULE,
    method_by_name.RULE,
    grad_scaler.RULE,
    summon_full_params.RULE,
    state_dict.RULE,
    model_state.RULE,
    optimizer_state.RULE,
    sharded_optimizer_load.RULE,
    dcp_functions.RULE,
    fsdp_units.RULE,
    freed_parameters.RULE,
    checkpoint_format.RULE,
    class_check.RULE,
    class_by_name.RULE,
    class_as_value.RULE,
)

TRAPS: tuple[Check, ...] = (
    low_precision_gradients.CHECK,
    full_precision_eval.CHECK,
    unwrapped_root.CHECK,
    gradient_collectives.CHECK,
    parameter_groups.CHECK,
    groups_by_name.CHECK,
    refusing_optimizers.CHECK,
    tied_weights.CHECK,
    class_names.CHECK,
    copied_model.CHECK,
    class_layout.CHECK,
    late_writes.CHECK,
    wrapper_names.CHECK,
    parameter_ids.CHECK,
    comm_hook.CHECK,
    unsynced_grad.CHECK,
    shard_values.CHECK,
    index_writes.CHECK,
    parameter_counts.CHECK,
)

LEFT_ALONE: tuple[Check, ...] = (
    side_by_side.CHECK,
    fsdp_subclass.CHECK,
    vendored.CHECK,
    generated.CHECK,
    fairscale.CHECK,
    two_imports.CHECK,
)
