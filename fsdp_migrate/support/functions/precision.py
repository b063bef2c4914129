"""Mixed precision with FSDP1's casts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecision, MixedPrecisionPolicy
from torch.nn.modules.batchnorm import _BatchNorm


def unit_mp_policy(
    mixed_precision: MixedPrecision | None, is_root: bool = False, output_dtype: torch.dtype | None = None
) -> MixedPrecisionPolicy:
    """FSDP1's mixed precision for one unit: it cast the inputs of the root and, unless told to, of no other unit.

    FSDP2 casts at every unit by default, which rounds activations that a float32 buffer had promoted.
    """
    if mixed_precision is None:
        return MixedPrecisionPolicy()
    if mixed_precision.keep_low_precision_grads:
        raise NotImplementedError(
            "FSDP2 keeps gradients in the dtype of the parameters: drop keep_low_precision_grads, or make the model "
            "itself low precision with model.to(dtype) before sharding it"
        )
    casts = mixed_precision.cast_forward_inputs
    if is_root:
        casts = casts or mixed_precision.cast_root_forward_inputs
    return MixedPrecisionPolicy(mixed_precision.param_dtype, mixed_precision.reduce_dtype, output_dtype, casts)


def cast_at_root(model: nn.Module) -> None:
    """FSDP1 cast the inputs of the root alone, which a unit is not any more once the model around it is sharded."""
    for unit in model.modules():
        if unit is not model and isinstance(unit, FSDPModule):
            state = unit._get_fsdp_state()
            state._mp_policy = replace(state._mp_policy, cast_forward_inputs=False)


def float32_mp_policy(mixed_precision: MixedPrecision) -> MixedPrecisionPolicy:
    """For a unit of the classes that FSDP1 kept in float32 (BatchNorm): cast the inputs up, and the outputs back."""
    return MixedPrecisionPolicy(param_dtype=torch.float32, output_dtype=mixed_precision.param_dtype)


def cast_module_buffers(modules: Iterable[nn.Module], dtype: torch.dtype) -> None:
    """Cast the floating-point buffers that these modules themselves hold."""
    for module in modules:
        for buffer in module.buffers(recurse=False):
            if buffer.is_floating_point():
                buffer.data = buffer.to(dtype)


def cast_buffers(model: nn.Module, dtype: torch.dtype, skip: tuple[type[nn.Module], ...] = (_BatchNorm,)) -> None:
    """FSDP1's `buffer_dtype`, which FSDP2 does not have.

    `skip` are the classes that stay in float32. Unlike FSDP1, a checkpoint then holds these buffers as they are, in
    `dtype`.
    """
    cast_module_buffers((module for module in model.modules() if not isinstance(module, skip)), dtype)
