"""FSDP1's and FSDP2's device arguments, and what cannot be had on a CPU."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    OffloadPolicy,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
)
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as fsdp2_group

from fsdp_migrate.probe.passing import passed_on
from fsdp_migrate.probe.redirect.device import CPU

_ARGUMENTS = list(inspect.signature(FullyShardedDataParallel.__init__).parameters)[1:]


def redirect_fsdp() -> None:
    init = FullyShardedDataParallel.__init__

    @functools.wraps(init)
    def on_cpu(self: Any, *args: Any, **kwargs: Any) -> None:
        given = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
        passed_on(init, self, **{**given, "device_id": CPU, "cpu_offload": None})

    FullyShardedDataParallel.__init__ = on_cpu  # type: ignore[method-assign]
    _without_offload()
    _without_state_dict_offload()


def _without_offload() -> None:
    """On both sides parameters already are where offload would put them; pinning memory would need CUDA."""
    init = fsdp2_group.FSDPParamGroup.__init__
    names = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def keep(self: Any, *args: Any, **kwargs: Any) -> None:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if isinstance(given.get("offload_policy"), CPUOffloadPolicy):
            given["offload_policy"] = OffloadPolicy()
        passed_on(init, self, **given)

    fsdp2_group.FSDPParamGroup.__init__ = keep  # type: ignore[method-assign]


def _without_state_dict_offload() -> None:
    """An "offloaded" state dict of a CPU model shares the model's memory. FSDP1 frees that of the weights (reading them
    is a segmentation fault) and overwrites that of the optimizer (a resumed run has another loss: 1.254 for 1.291)."""
    read = FullyShardedDataParallel._optim_state_dict_impl

    @functools.wraps(read)
    def keep(*args: Any, **kwargs: Any) -> Any:
        return passed_on(read, *args, **{**kwargs, "cpu_offload": False})

    FullyShardedDataParallel._optim_state_dict_impl = staticmethod(keep)  # type: ignore[method-assign]
    for config in (FullStateDictConfig, ShardedStateDictConfig, FullOptimStateDictConfig, ShardedOptimStateDictConfig):
        _no_offload(config)


def _no_offload(config: Any) -> None:
    init = config.__init__

    @functools.wraps(init)
    def without(self: Any, *args: Any, **kwargs: Any) -> None:
        passed_on(init, self, *args, **kwargs)
        self.offload_to_cpu = False

    config.__init__ = without
