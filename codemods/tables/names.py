"""The public names of FSDP1 in `torch.distributed.fsdp`, by the kind of thing they are.

Source: torch 2.13, `torch/distributed/fsdp/{__init__,api,fully_sharded_data_parallel,wrap,sharded_grad_scaler}.py`.
The same name can be imported from several of these modules; a construct is known by its last part.
"""

from __future__ import annotations

PACKAGE = "torch.distributed.fsdp"

WRAPPER = "FullyShardedDataParallel"
SUMMON = f"{WRAPPER}.summon_full_params"

POLICIES = frozenset(
    {
        "CustomPolicy",
        "ModuleWrapPolicy",
        "_module_wrap_policy",
        "_or_policy",
        "always_wrap_policy",
        "lambda_auto_wrap_policy",
        "size_based_auto_wrap_policy",
        "transformer_auto_wrap_policy",
    }
)

CONFIGS = frozenset({"BackwardPrefetch", "CPUOffload", "MixedPrecision", "ShardingStrategy"})

STATE_DICT_CONFIGS = frozenset(
    {
        "FullOptimStateDictConfig",
        "FullStateDictConfig",
        "LocalOptimStateDictConfig",
        "LocalStateDictConfig",
        "OptimStateDictConfig",
        "ShardedOptimStateDictConfig",
        "ShardedStateDictConfig",
        "StateDictConfig",
        "StateDictSettings",
        "StateDictType",
    }
)

PLAIN_DATA = CONFIGS | STATE_DICT_CONFIGS | POLICIES | {"OptimStateKeyType"}
"""Enums, records of settings, and policies that choose units: FSDP2 code can use them as well."""

MANUAL_WRAPPING = frozenset({"enable_wrap", "wrap"})

HELPERS = frozenset({"FlatParameter", "ShardedGradScaler", "OptimStateKeyType"})

FSDP1 = POLICIES | CONFIGS | STATE_DICT_CONFIGS | HELPERS | MANUAL_WRAPPING | {WRAPPER}

FSDP2 = frozenset(
    {
        "CPUOffloadPolicy",
        "DataParallelMeshDims",
        "FSDPModule",
        "MixedPrecisionPolicy",
        "OffloadPolicy",
        "ShardPlacementResult",
        "UnshardHandle",
        "fully_shard",
        "register_fsdp_forward_method",
        "share_comm_ctx",
    }
)
"""What FSDP2 exports from the same package. Everything else in it is FSDP1, private helpers and old names included."""

_FORMER_PACKAGE = "torch.distributed._composable.fsdp"
"""Where FSDP2 was imported from before torch 2.6; on 2.13 it exports the very same objects."""

_METHODS = """
check_is_root clip_grad_norm_ fsdp_modules full_optim_state_dict get_state_dict_type load_state_dict optim_state_dict
set_state_dict_type sharded_optim_state_dict state_dict state_dict_type summon_full_params
"""
TAKES_MODEL_FIRST = frozenset(f"{WRAPPER}.{method}" for method in _METHODS.split())
"""What is given to one of these first is a model in every version of torch."""

FORMER_POLICIES = {"default_auto_wrap_policy": "size_based_auto_wrap_policy"}
"""What torch 1.11 called a policy that has had another name since, with the same defaults."""

_MODULES = frozenset({"api", "fully_sharded_data_parallel", "sharded_grad_scaler", "wrap"})

SILENT_ON_FSDP2 = frozenset(
    {
        "FullyShardedDataParallel.fsdp_modules",
        "FullyShardedDataParallel.set_state_dict_type",
        "FullyShardedDataParallel.state_dict_type",
        "FullyShardedDataParallel.summon_full_params",
    }
)
"""Called on a `fully_shard`-ed model these do nothing, and say nothing (measured on torch 2.13)."""


def present_name(dotted: str) -> str:
    """What a name of FSDP2 is called since torch 2.6.

    >>> present_name("torch.distributed._composable.fsdp.fully_shard")
    'torch.distributed.fsdp.fully_shard'
    """
    is_former = dotted.startswith(_FORMER_PACKAGE + ".")
    return PACKAGE + dotted.removeprefix(_FORMER_PACKAGE) if is_former else dotted


def fsdp1_name(dotted: str) -> str | None:
    """The FSDP1 construct behind a dotted name, or None.

    >>> fsdp1_name("torch.distributed.fsdp.wrap.ModuleWrapPolicy")
    'ModuleWrapPolicy'
    >>> fsdp1_name("torch.distributed.fsdp.FullyShardedDataParallel.state_dict_type")
    'FullyShardedDataParallel.state_dict_type'
    >>> fsdp1_name("torch.distributed.fsdp.fully_shard")
    >>> fsdp1_name("torch.distributed.fsdp.wrap")  # the module, and not the function in it
    """
    if not dotted.startswith(PACKAGE + "."):
        return None
    parts = dotted[len(PACKAGE) + 1 :].split(".")
    if parts[0] in _MODULES:
        parts = parts[1:]
    if not parts or parts[0] in FSDP2 or parts[0] == "_fully_shard":
        return None
    return ".".join(parts)
