"""FSDP1 constructs that no codemod rewrites: what each is, and what a person can do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leftover:
    """The finding for a construct that is still there."""

    code: str
    name: str
    message: str
    hint: str


_STICKY = Leftover(
    "FM302",
    "sticky-state-dict-type",
    "set_state_dict_type does nothing on an FSDP2 model",
    "read and load state dicts with torch.distributed.checkpoint.state_dict, which has no settings",
)
_OPTIMIZER = Leftover(
    "FM303",
    "optimizer-state-method",
    "optimizer state is read or loaded through FSDP1",
    "use get_optimizer_state_dict(model, optimizer) and set_optimizer_state_dict(model, optimizer, state)",
)
_MANUAL_WRAP = Leftover(
    "FM106",
    "manual-wrapping",
    "manual wrapping with enable_wrap and wrap",
    "call fully_shard on each module where wrap(module) stands, and on the whole model last",
)

COMM_HOOK = Leftover(
    "FM211",
    "communication-hook",
    "gradients go through a hook of the program's own, and an FSDP2 model has no such hooks",
    "for fp16 or bf16 compression give reduce_dtype of the mixed precision; others can use set_all_reduce_hook",
)

LEFTOVERS = {
    "FullyShardedDataParallel.register_comm_hook": COMM_HOOK,
    "FullyShardedDataParallel.clip_grad_norm_": Leftover(
        "FM202",
        "clip-grad-norm-method",
        "FSDP1's clip_grad_norm_ is called through the class, with a model that is not seen",
        "call torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
    ),
    "FullyShardedDataParallel.fsdp_modules": Leftover(
        "FM107",
        "fsdp-modules",
        "fsdp_modules finds nothing in an FSDP2 model",
        "the roots are the models that were sharded last: name them",
    ),
    "FullyShardedDataParallel.flatten_sharded_optim_state_dict": _OPTIMIZER,
    "FullyShardedDataParallel.full_optim_state_dict": _OPTIMIZER,
    "FullyShardedDataParallel.get_state_dict_type": _STICKY,
    "FullyShardedDataParallel.optim_state_dict": _OPTIMIZER,
    "FullyShardedDataParallel.optim_state_dict_to_load": _OPTIMIZER,
    "FullyShardedDataParallel.rekey_optim_state_dict": _OPTIMIZER,
    "FullyShardedDataParallel.scatter_full_optim_state_dict": _OPTIMIZER,
    "FullyShardedDataParallel.set_state_dict_type": _STICKY,
    "FullyShardedDataParallel.shard_full_optim_state_dict": _OPTIMIZER,
    "FullyShardedDataParallel.sharded_optim_state_dict": _OPTIMIZER,
    "ShardedGradScaler": Leftover(
        "FM204",
        "sharded-grad-scaler",
        "ShardedGradScaler is FSDP1's",
        'torch.amp.GradScaler("cuda") works with DTensor gradients',
    ),
    "enable_wrap": _MANUAL_WRAP,
    "wrap": _MANUAL_WRAP,
}

CLASS = Leftover(
    "FM109",
    "fsdp-class-as-value",
    "FullyShardedDataParallel is used as a value",
    "fully_shard shards a module in place: pass a function that calls it; for a class test use FSDPModule",
)
PRIVATE = Leftover(
    "FM401",
    "fsdp-internals",
    "internals of FSDP1 (flat parameters, handles, private helpers)",
    "an FSDP2 parameter is a DTensor: p.to_local() is this rank's shard, p.full_tensor() the whole",
)
RESHARDING = frozenset({"_handle", "_handles", "_post_backward_final_callback", "_reshard"})
RESHARDING_HINT = "an FSDPModule has module.reshard(), which frees what was gathered of it; call it on each one"
"""Internals that programs take to free gathered parameters, and the cure."""
HOOK_HINT = (
    "fully_shard registers hooks of its own; what runs FSDP1's by hand gathers by module.unshard(), and frees by"
    " module.reshard()"
)
INTERNALS = frozenset(
    {
        "_all_handles",
        "_flat_param",
        "_fsdp_wrapped_module",
        "_handle",
        "_handles",
        "_local_shard",
        "_shard_param_infos",
        "_streams",
        "flat_param",
    }
)
"""Attributes that only an FSDP1 module, its handle or its flat parameter has."""

BY_NAME = frozenset({"clip_grad_norm_", "no_sync", "set_state_dict_type", "state_dict_type", "summon_full_params"})
"""Methods of an FSDP1 model that `getattr` and `hasattr` find by name, and that an FSDP2 model does not have."""

_OF_WRAPPER = """
_all_fsdp_states _all_reduce_stream _assert_state _buffer_name_to_orig_dtype _buffer_names _comm_hook _comm_hook_state
_debug_level _default_stream _deregister_orig_params_ctx _device_handle _device_mesh _exec_order_data
_free_event_queue _fsdp_extension _fully_sharded_module_to_handle _gradient_postdivide_factor
_gradient_predivide_factor _has_params _ignored_buffer_names _ignored_modules _ignored_params _inter_node_pg
_inter_node_state _is_root
_is_using_optim_input _low_precision_hook_enabled _mixed_precision_enabled_for_buffers _optim_state_dict_config
_optim_state_dict_impl _optim_state_dict_to_load_impl _post_backward_callback_queued _post_backward_stream
_post_forward_handles _pre_forward_handles _pre_unshard_stream _reset_lazy_init _root_pre_forward_handles
_state_dict_config _state_dict_type _sync_gradients _unshard _unshard_event _unshard_params_ctx _unshard_stream
_use_full_prec_in_eval _use_orig_params _use_training_state _wait_unshard_streams_on_current_stream
_warn_legacy_optim_state_dict _warn_optim_input _zero_scalar backward_prefetch compute_device cpu_offload
forward_prefetch limit_all_gathers mixed_precision process_group sharding_strategy training_state
"""
OF_WRAPPER = frozenset(_OF_WRAPPER.split())
"""What else FSDP1's wrapper has and an FSDP2 model has not: read directly it raises, by name it is passed over."""
SETTINGS = frozenset({"backward_prefetch", "forward_prefetch", "limit_all_gathers", "sharding_strategy"})
"""What programs set on FSDP1's wrapper after it is made. Setting it on an FSDP2 model does nothing."""

SPEED_ONLY = frozenset(
    {"_exec_order_data", "_free_event_queue", "backward_prefetch", "forward_prefetch", "limit_all_gathers"}
)
"""What only sets how far FSDP1 gathers ahead: nothing trains otherwise where a program asks whether it is there."""
ALSO_OF_MODELS = frozenset({"params", "rank", "world_size"})
"""The same under names that programs give to attributes of their own as well."""

HARMLESS = frozenset({"FSDP_PREFIX", "FSDP_WRAPPED_MODULE", "clean_tensor_name"})
"""Private names that deal in parameter names alone, and find nothing to take away from FSDP2's."""

STATIC = frozenset(
    {
        "check_is_root",
        "flatten_sharded_optim_state_dict",
        "fsdp_modules",
        "full_optim_state_dict",
        "get_state_dict_type",
        "optim_state_dict",
        "optim_state_dict_to_load",
        "rekey_optim_state_dict",
        "scatter_full_optim_state_dict",
        "set_state_dict_type",
        "shard_full_optim_state_dict",
        "sharded_optim_state_dict",
        "state_dict_type",
    }
)
"""Methods of the wrapper itself, called on a model."""

ON_MODEL = Leftover(
    "FM207",
    "wrapper-method-on-model",
    "`{name}` of FSDP1's wrapper is used on a model, and an FSDP2 model does not have it",
    "use the functions of torch.distributed.checkpoint.state_dict, and p.full_tensor() to read parameters",
)
ON_MODEL_HINTS = {
    "backward_prefetch": "drop it: FSDP2 gathers ahead by itself, or call model.set_modules_to_forward_prefetch([...])",
    "check_is_root": "keep a reference to the model that fully_shard was called on last, and compare with that",
    "compute_device": 'use torch.device("cuda", torch.cuda.current_device())',
    "cpu_offload": "keep what was given to fully_shard as offload_policy in a variable, and read that",
    "forward_prefetch": "drop it, or call model.set_modules_to_forward_prefetch([...])",
    "limit_all_gathers": "drop it: FSDP2 always limits them",
    "mixed_precision": "keep what was given to fully_shard as mp_policy in a variable, and read that",
    "process_group": "use mesh.get_group() of the mesh that fully_shard was given, or None for all ranks",
    "rank": "use dist.get_rank(group) of the group that the model is sharded over",
    "sharding_strategy": "keep what chose reshard_after_forward and mesh in a variable, and read that",
    "training_state": "drop it: FSDP2 has no such state to ask for",
    "world_size": "use dist.get_world_size(group) of the group that the model is sharded over",
    "_has_params": "drop the test: m.reshard() does nothing for a module without parameters of its own",
    "_inter_node_pg": "use mesh.get_group(0) of the mesh of two dimensions that fully_shard was given",
    "_is_root": "keep a reference to the model that fully_shard was called on last, and compare with that",
    "_sync_gradients": "call model.set_requires_gradient_sync(...)",
}
"""What to type in the place of an attribute of the wrapper."""
BY_CLASS = frozenset(
    {
        *("apply", "buffers", "children", "cpu", "cuda", "eval", "float", "forward", "half", "load_state_dict"),
        *("modules", "named_buffers", "named_children", "named_modules", "named_parameters", "no_sync", "parameters"),
        *("requires_grad_", "state_dict", "to", "train", "zero_grad"),
    }
)
"""Methods of every model, and `no_sync`, which can be called by FSDP1's class as well."""
OTHER = Leftover(
    "FM100", "fsdp1-left", "FSDP1 is still used here", "see the FSDP2 documentation of torch for its replacement"
)
GONE = frozenset({"HandleInitMode", "ParamExecOrderPolicy", "ParamExecOrderWrapPolicy"})
"""What torch 2.13 does not have any more: an import of it fails, whatever becomes of the program."""
