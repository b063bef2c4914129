"""What an optimizer holds: which parameters by name, which hyper-parameters, how many bytes of state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from fsdp_migrate.probe.names import WRAPPER_PARTS, clean
from fsdp_migrate.probe.views import Piece

_HOW_NOT_WHAT = frozenset({"params", "param_names", "foreach", "fused", "capturable", "differentiable"})
"""Group entries that choose an implementation and not a result, or that name what the group holds anyway."""


def names_by_handle(some: Iterable[Piece]) -> dict[int, list[str]]:
    """Parameter names by the id of the tensor an optimizer holds; a flat parameter has many."""
    names: dict[int, list[str]] = defaultdict(list)
    for piece in some:
        for handle in piece.handles:
            names[handle].append(piece.fqn)
    return names


def group_names(optimizer: Optimizer, names: dict[int, list[str]]) -> list[list[str]]:
    """Sorted parameter names of each group. A tensor that is in no FSDP root is named by its place: `?0.3`."""
    return [
        sorted(
            name for place, param in enumerate(group["params"]) for name in names.get(id(param), [f"?{number}.{place}"])
        )
        for number, group in enumerate(optimizer.param_groups)
    ]


def hyper_parameters(optimizer: Optimizer) -> list[dict[str, object]]:
    """The settings of each group that decide the update: learning rate, betas, weight decay, …"""
    return [
        {key: _plain(value) for key, value in group.items() if key not in _HOW_NOT_WHAT}
        for group in optimizer.param_groups
    ]


def state_bytes(optimizer: Optimizer) -> int:
    """Bytes of the local optimizer state that is shaped like the parameters.

    Scalars are left out: FSDP1 with a flat parameter keeps one step counter where FSDP2 keeps one a parameter.
    """
    total = 0
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor) and value.ndim > 0:
                local = value.to_local() if isinstance(value, DTensor) else value
                total += local.numel() * local.element_size()
    return total


def moves_without_gradient(optimizer: Optimizer) -> bool:
    """Whether a zero gradient still changes a parameter (weight decay, momentum): then zero and None differ."""
    stirring = ("weight_decay", "momentum", "betas")
    return any(bool(group.get(key)) for group in optimizer.param_groups for key in stirring)


def _plain(value: object) -> object:
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 else "tensor"
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return clean(value) if set(value.split(".")) & WRAPPER_PARTS else value
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return type(value).__name__
