"""Where the elements of a local piece sit in the whole tensor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from math import prod

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import Placement


@dataclass(frozen=True, slots=True)
class GlobalIndex:
    """Maps flat local positions to flat global positions.

    A contiguous piece (a chunk of an FSDP1 flat parameter) is the case of one dimension.
    """

    local_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    globalstrides: tuple[int, ...]

    def __call__(self, start: int, stop: int, device: torch.device) -> Tensor:
        """Global flat indices, int64, of the local flat positions `start` to `stop`."""
        local = torch.arange(start, stop, device=device)
        out = torch.zeros_like(local)
        localstrides = strides(self.local_shape)
        for size, stride, offset, global_stride in zip(
            self.local_shape, localstrides, self.offsets, self.globalstrides, strict=True
        ):
            out += ((local // stride) % max(1, size) + offset) * global_stride
        return out


def contiguous(start: int, count: int) -> GlobalIndex:
    """`count` neighbouring elements from flat position `start`."""
    return GlobalIndex((count,), (start,), (1,))


def of_dtensor(tensor: DTensor) -> GlobalIndex:
    """The piece of `tensor` this rank holds. Known: `Shard` on any dimension and `Replicate`; uneven shards."""
    return _held(tensor.shape, tensor.device_mesh, tensor.placements)


@cache
def _held(shape: torch.Size, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> GlobalIndex:
    local_shape, offsets = compute_local_shape_and_global_offset(shape, mesh, placements)
    return GlobalIndex(tuple(local_shape), tuple(offsets), strides(tuple(shape)))


def replicas_of(tensor: DTensor, world: int) -> int:
    """How many ranks hold the same piece."""
    pieces = prod(
        size
        for placement, size in zip(tensor.placements, tensor.device_mesh.shape, strict=True)
        if not placement.is_replicate()
    )
    return max(1, world // pieces)


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    inner_first = accumulate((max(1, size) for size in reversed(shape[1:])), lambda a, b: a * b, initial=1)
    return tuple(reversed(list(inner_first))) if shape else ()
