"""The linear layers that compute in float8 (torchao), and whether the scales of their weights are those of the weights.

Private names of torchao 0.18 used here: `Float8Linear.weight._local_tensor._precomputed_scale`, `._tensor`, `._dtype`,
which a weight has that is gathered in float8. torchao is never imported: a program that has it has imported it.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


def uses_float8() -> bool:
    """Whether the program has anything to do with torchao's float8."""
    return "torchao.float8" in sys.modules


def local_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor: of a weight that is gathered in float8, the values and not the subclass around
    them, which does without most of what tensors can."""
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    held = getattr(local, "_tensor", None)
    return held if isinstance(held, Tensor) else local


@torch.no_grad()
def float8_state(root: nn.Module) -> dict[str, Any]:
    """Of all float8 layers below a root: how many there are, and the elements of weights that are gathered in float8.

    `filled` is, for each of those, how much of float8's range the scale makes of this rank's largest element: 1 on the
    rank that has the largest of all, where the scale belongs to the weight as it is now; None without a scale.
    """
    layers: list[Any] = [module for module in root.modules() if type(module).__name__ == "Float8Linear"]
    held = [(layer.weight, getattr(layer.weight, "_local_tensor", layer.weight)) for layer in layers]
    gathered = [(weight, local) for weight, local in held if hasattr(local, "_precomputed_scale")]
    numel = sum(weight.numel() for weight, _ in gathered)
    return {"linears": len(layers), "numel": numel, "filled": [_filled(local) for _, local in gathered]}


def _filled(local: Any) -> float | None:
    scale, values = local._precomputed_scale, local._tensor
    if scale is None:
        return None
    largest = float(values.abs().max()) if values.numel() else 0.0
    return largest * float(scale) / torch.finfo(local._dtype).max
