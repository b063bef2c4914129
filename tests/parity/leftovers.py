"""Every name of FSDP1 that could be left over, each in a function that uses it on a wrapped model.

What an FSDP2 model would pass over must be rewritten, or raise when it is reached.
"""

from __future__ import annotations

from textwrap import indent

WRAPPERS = (
    "_assert_state _deregister_orig_params_ctx _flat_param _has_params _is_using_optim_input "
    "_low_precision_hook_enabled _mixed_precision_enabled_for_buffers _optim_state_dict_impl "
    "_optim_state_dict_to_load_impl _reset_lazy_init _unshard _use_training_state "
    "_wait_unshard_streams_on_current_stream _warn_legacy_optim_state_dict _warn_optim_input check_is_root "
    "clip_grad_norm_ flatten_sharded_optim_state_dict fsdp_modules full_optim_state_dict get_state_dict_type no_sync "
    "optim_state_dict optim_state_dict_to_load register_comm_hook rekey_optim_state_dict "
    "scatter_full_optim_state_dict set_state_dict_type shard_full_optim_state_dict sharded_optim_state_dict "
    "state_dict_type summon_full_params"
)
"""What the wrapper has and `nn.Module` has not, save `module` and `__getitem__`, which a module can have too."""

PRIVATE = {
    "_common_utils": "_get_module_fsdp_state _get_module_fsdp_state_if_fully_sharded_module _has_fsdp_params "
    "_is_fsdp_flattened _module_handle _get_param_to_fqns _get_sharding_strategy _is_composable _get_root_modules",
    "_flat_param": "FlatParamHandle",
    "_init_utils": "_get_default_group",
    "_optim_utils": "_optim_state_dict _flatten_optim_state_dict _get_flat_param_to_fqn",
    "_runtime_utils": "_lazy_init _get_fsdp_root_states _is_fsdp_root _pre_forward _root_pre_forward",
    "_state_dict_utils": "_replace_with_full_state_dict_type _set_use_dtensor",
    "_traversal_utils": "_get_fsdp_states _get_fsdp_handles _get_fsdp_states_with_modules",
    "_unshard_param_utils": "_unshard_params _register_flat_param",
}
"""Functions that look for FSDP1's modules and find none: real programs import them."""

STATEMENTS = [
    "with FSDP.state_dict_type(model, None):\n    pass",
    "for unit in FSDP.fsdp_modules(model):\n    print(unit)",
    "type(model) is FSDP",
    "model.__class__ == FSDP",
    "'FullyShardedDataParallel' in str(type(model))",
    "[isinstance(p, FlatParameter) for p in model.parameters()]",
    "model._handle.flat_param",
]
for name in ["_handle", "_handles", "_is_root", "sharding_strategy", "process_group", "mixed_precision"]:
    STATEMENTS += [f"model.{name}", f'getattr(model, "{name}", None)', f'hasattr(model, "{name}")']
for name in WRAPPERS.split():
    STATEMENTS += [f"FSDP.{name}(model)", f"model.{name}(model)"]
    STATEMENTS += [f'getattr(model, "{name}", None)', f'hasattr(model, "{name}")']
STATEMENTS += [f"{name}(model)" for names in PRIVATE.values() for name in names.split()]

IMPORTS = [
    "from models import Plain",
    "from torch.distributed.fsdp import FlatParameter",
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP",
    *(f"from torch.distributed.fsdp.{module} import {', '.join(names.split())}" for module, names in PRIVATE.items()),
]
FUNCTIONS = {
    f"use_{index}": f"def use_{index}():\n    model = build()\n{indent(statement, '    ')}\n"
    for index, statement in enumerate(STATEMENTS)
}
PROGRAM = "\n\n".join(["\n".join(IMPORTS) + "\n", "def build():\n    return FSDP(Plain())\n", *FUNCTIONS.values()])
