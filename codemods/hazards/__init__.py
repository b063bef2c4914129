"""What trains otherwise, or breaks, once the program is FSDP2: one rule a file, that finds and changes nothing."""

from __future__ import annotations

from codemods.api import Check

from . import (
    class_layout,
    class_names,
    comm_hook,
    copied_model,
    forward_on_one_rank,
    full_precision_eval,
    fused_optimizers,
    gradient_collectives,
    groups_by_name,
    index_writes,
    late_writes,
    low_precision_gradients,
    other_methods,
    parameter_attributes,
    parameter_counts,
    parameter_groups,
    parameter_hooks,
    parameter_ids,
    refusing_optimizers,
    shard_values,
    tied_weights,
    unsynced_grad,
    unwrapped_root,
    wrapper_names,
)

HAZARDS: tuple[Check, ...] = (
    low_precision_gradients.CHECK,
    full_precision_eval.CHECK,
    unwrapped_root.CHECK,
    fused_optimizers.CHECK,
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
    parameter_hooks.CHECK,
    other_methods.CHECK,
    parameter_attributes.CHECK,
    forward_on_one_rank.CHECK,
)
