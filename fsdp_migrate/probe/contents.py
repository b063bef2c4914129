"""What is in a checkpoint, key by key: kinds, shapes, dtypes, and fingerprints that add up over ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.tensor import DTensor

from fsdp_migrate.probe.float8 import local_part
from fsdp_migrate.probe.layout import GlobalIndex, contiguous, of_dtensor, replicas_of, strides
from fsdp_migrate.probe.sketch import sketch

_SAMPLE = 1 << 16
"""Elements of a tensor that its fingerprint is made of, evenly spaced, at least."""
_CHUNK = 1 << 22
_PLAIN = (bool, int, float, str, type(None))
_LONGEST = 200


def described(state: object, world: int) -> Iterator[dict[str, object]]:
    """One entry a leaf, in the order of the keys: `key`, `kind`, and what there is to say of its value."""
    for key, leaf in _leaves("", state, ()):
        yield {"key": key, **_entry(leaf, world)}


def _leaves(prefix: str, value: object, above: tuple[int, ...]) -> Iterator[tuple[str, object]]:
    items: Iterator[tuple[object, object]] | None = None
    if id(value) in above:
        return
    if isinstance(value, Mapping):
        items = iter(value.items())
    elif isinstance(value, (list, tuple)):
        items = iter(enumerate(value))
    if items is None:
        yield prefix, value
        return
    for key, item in items:
        yield from _leaves(f"{prefix}.{key}" if prefix else str(key), item, (*above, id(value)))


def _entry(leaf: object, world: int) -> dict[str, object]:
    if isinstance(leaf, DTensor):
        local = local_part(leaf).detach().reshape(-1)
        pieces = [(local, of_dtensor(leaf))]
        return _tensor("DTensor", leaf, pieces, replicas_of(leaf, world))
    if isinstance(leaf, ShardedTensor):
        shards = [
            (
                shard.tensor.detach().reshape(-1),
                GlobalIndex(
                    tuple(shard.metadata.shard_sizes), tuple(shard.metadata.shard_offsets), strides(tuple(leaf.size()))
                ),
            )
            for shard in leaf.local_shards()
        ]
        return _tensor("ShardedTensor", leaf, shards, 1)
    if isinstance(leaf, Tensor):
        return _tensor("tensor", leaf, [(leaf.detach().reshape(-1), contiguous(0, leaf.numel()))], 1)
    if isinstance(leaf, _PLAIN):
        return {"kind": type(leaf).__name__, "value": leaf if not isinstance(leaf, str) else leaf[:_LONGEST]}
    return {"kind": type(leaf).__name__}


def _tensor(kind: str, whole: Any, pieces: list[tuple[Tensor, GlobalIndex]], replicas: int) -> dict[str, object]:
    shape = tuple(whole.size())
    entry: dict[str, object] = {"kind": kind, "shape": shape, "dtype": str(whole.dtype).removeprefix("torch.")}
    if any(values.is_meta or values.is_complex() or values.is_quantized for values, _ in pieces):
        return entry
    numel = 1
    for size in shape:
        numel *= size
    stride = max(1, numel // _SAMPLE)
    parts = [_sampled(values, index, stride) for values, index in pieces]
    return {**entry, "rep": replicas, "N": -(-numel // stride), "parts": [part for some in parts for part in some]}


class _Listed:
    """The global positions of some elements, as sketch() asks for them."""

    def __init__(self, positions: Tensor) -> None:
        self._positions = positions

    def __call__(self, start: int, stop: int, device: torch.device) -> Tensor:
        return self._positions[start:stop].to(device)


def _sampled(values: Tensor, index: GlobalIndex, stride: int) -> Iterator[dict[str, object]]:
    """Fingerprints of every `stride`-th element of the whole, as far as they are in this piece."""
    for start in range(0, values.numel(), _CHUNK):
        stop = min(values.numel(), start + _CHUNK)
        positions = index(start, stop, values.device)
        chosen = values[start:stop]
        if stride > 1:
            wanted = positions % stride == 0
            positions, chosen = positions[wanted], chosen[wanted]
        part = sketch(chosen, _Listed(positions))
        yield {name: part[name] for name in ("n", "sum", "sq", "nonfinite", "s")}
