"""Every name of FSDP1 that could be left over, each in a function that uses it on a wrapped model.

What an FSDP2 model would pass over must be rewritten, or raise when it is reached.
"""

from __future__ import annotations

import importlib
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

ATTRIBUTES = (
    "_all_fsdp_states _all_handles _all_reduce_stream _buffer_name_to_orig_dtype _buffer_names _comm_hook "
    "_comm_hook_state _debug_level _default_stream _device_handle _device_mesh _exec_order_data _free_event_queue "
    "_fsdp_extension _fully_sharded_module_to_handle _gradient_postdivide_factor _gradient_predivide_factor _handle "
    "_ignored_buffer_names _ignored_modules _ignored_params _is_root _optim_state_dict_config "
    "_post_backward_callback_queued _post_backward_stream _post_forward_handles _pre_forward_handles "
    "_pre_unshard_stream _root_pre_forward_handles _state_dict_config _state_dict_type _sync_gradients _unshard_event "
    "_unshard_params_ctx _unshard_stream _use_full_prec_in_eval _use_orig_params _zero_scalar backward_prefetch "
    "compute_device cpu_offload forward_prefetch limit_all_gathers mixed_precision params process_group rank "
    "sharding_strategy training_state world_size"
)
"""What the wrapper gives to each model: to read, and to set, which FSDP2 would never look at."""

ONLY_NAMES = "clean_tensor_name"
"""Deals in parameter names alone, and finds nothing to take away from FSDP2's."""

SPEED_ONLY = {"_exec_order_data", "_free_event_queue", "backward_prefetch", "forward_prefetch", "limit_all_gathers"}
"""What programs ask for to gather further ahead: that it is not there changes no value. It is reported, and stays."""

OVERRIDDEN = {"_apply", "apply", "forward", "named_buffers", "named_parameters"}
"""Methods of every module that the wrapper has in a form of its own.

FSDP2 has an `_apply` too, `apply` and `forward` have rules (FM403, FM104), and the names are the model's own in FSDP2.
"""

MODULES = (
    "_common_utils _debug_utils _dynamo_utils _exec_order_utils _flat_param _fsdp_extensions _init_utils "
    "_limiter_utils _optim_utils _runtime_utils _shard_utils _state_dict_utils _trace_utils _traversal_utils "
    "_unshard_param_utils _wrap_utils"
)
"""FSDP1's private modules: most of their functions look for FSDP1's modules and find none."""


def functions(module: str) -> list[str]:
    """The functions and classes that a private module defines."""
    members = vars(importlib.import_module(f"torch.distributed.fsdp.{module}")).items()
    own = [name for name, value in members if getattr(value, "__module__", "").endswith(f".{module}")]
    return sorted(name for name in own if name not in {"P", "T"})


PRIVATE = {module: functions(module) for module in MODULES.split()}

STATEMENTS = [
    "with FSDP.state_dict_type(model, None):\n    pass",
    "for unit in FSDP.fsdp_modules(model):\n    print(unit)",
    "type(model) is FSDP",
    "model.__class__ == FSDP",
    "'FullyShardedDataParallel' in str(type(model))",
    "[isinstance(p, FlatParameter) for p in model.parameters()]",
    "model._handle.flat_param",
]
for name in ["_handles", *ATTRIBUTES.split()]:
    STATEMENTS += [f"print(model.{name})", f'getattr(model, "{name}", None)']
    STATEMENTS += [f'hasattr(model, "{name}")'] if name not in SPEED_ONLY else []
STATEMENTS += [f"model.{name} = None" for name in ATTRIBUTES.split() if name not in {"params", "rank", "world_size"}]
for name in WRAPPERS.split():
    STATEMENTS += [f"FSDP.{name}(model)", f"model.{name}(model)"]
    STATEMENTS += [f'getattr(model, "{name}", None)', f'hasattr(model, "{name}")']
STATEMENTS += dict.fromkeys(f"{name}(model)" for names in PRIVATE.values() for name in names if name != ONLY_NAMES)

IMPORTS = [
    "from models import Plain",
    "from torch.distributed.fsdp import FlatParameter",
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP",
    *(f"from torch.distributed.fsdp.{module} import {', '.join(names)}" for module, names in PRIVATE.items() if names),
]
FUNCTIONS = {
    f"use_{index}": f"def use_{index}():\n    model = build()\n{indent(statement, '    ')}\n"
    for index, statement in enumerate(STATEMENTS)
}
PROGRAM = "\n\n".join(["\n".join(IMPORTS) + "\n", "def build():\n    return FSDP(Plain())\n", *FUNCTIONS.values()])
