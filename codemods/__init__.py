"""The rules, in the order in which they are asked.

1. Constructor calls come first, then the definitions that change with them.
2. Then what is done with such a model: accumulation, clipping, state dicts.
3. The class itself comes last, because a constructor call or a static method holds its name too.

What no rule claims is reported by `leftover`. `HAZARDS` change nothing: they find what trains otherwise, or breaks,
once the program is FSDP2. `SKIPPED` say which files are left alone, and why. `FSDP2_LINT` is for any FSDP2 code: what
`fully_shard` needs and does not check.
"""

from __future__ import annotations

from typing import Any

from codemods.api import Rule
from codemods.fsdp2_lint import FSDP2_LINT
from codemods.hazards import HAZARDS
from codemods.rules.checkpoints import (
    checkpoint_format,
    dcp_functions,
    model_state,
    optimizer_state,
    saved_by_library,
    sharded_optimizer_load,
    shared_steps,
    state_dict,
)
from codemods.rules.training import (
    assigned_data,
    autocast_cache,
    averaged_handles,
    broadcast_shards,
    clip_grad_norm,
    freed_handles,
    freed_parameters,
    grad_scaler,
    hand_written_norm,
    local_clipping,
    method_by_name,
    moved_shards,
    no_sync,
    parameters_after_forward,
    prefixed_names,
    shared_streams,
    summon_full_params,
    unit_params,
)
from codemods.rules.wrapping import (
    apply_after,
    class_as_value,
    class_by_name,
    class_check,
    class_layout,
    dataclass_outputs,
    fsdp_units,
    manual_wrap,
    module_attribute,
    node_groups,
    optimizer_order,
    policy_definition,
    precision_definition,
    setting_annotation,
    wrap,
)
from codemods.skipped import SKIPPED

__all__ = ["FSDP2_LINT", "HAZARDS", "RULES", "SKIPPED"]

RULES: tuple[Rule[Any], ...] = (
    wrap.RULE,
    manual_wrap.RULE,
    node_groups.RULE,
    optimizer_order.RULE,
    class_layout.RULE,
    dataclass_outputs.RULE,
    apply_after.RULE,
    policy_definition.RULE,
    precision_definition.RULE,
    setting_annotation.RULE,
    no_sync.RULE,
    clip_grad_norm.RULE,
    local_clipping.RULE,
    parameters_after_forward.RULE,
    assigned_data.RULE,
    autocast_cache.RULE,
    module_attribute.RULE,
    method_by_name.RULE,
    grad_scaler.RULE,
    hand_written_norm.RULE,
    broadcast_shards.RULE,
    prefixed_names.RULE,
    summon_full_params.RULE,
    state_dict.RULE,
    model_state.RULE,
    saved_by_library.RULE,
    optimizer_state.RULE,
    sharded_optimizer_load.RULE,
    shared_steps.RULE,
    dcp_functions.RULE,
    fsdp_units.RULE,
    freed_handles.RULE,
    freed_parameters.RULE,
    moved_shards.RULE,
    shared_streams.RULE,
    averaged_handles.RULE,
    unit_params.RULE,
    checkpoint_format.RULE,
    class_check.RULE,
    class_by_name.RULE,
    class_as_value.RULE,
)
