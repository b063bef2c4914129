"""Every parameter of the program as this rank holds it: the local piece, its gradient, and where the piece belongs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from fsdp_migrate.probe.float8 import local_part
from fsdp_migrate.probe.layout import GlobalIndex, contiguous, of_dtensor, replicas_of
from fsdp_migrate.probe.names import clean
from fsdp_migrate.probe.units import fsdp1_handles, fsdp1_names, fsdp2_groups, fsdp2_names, fsdp2_sharded, module_names


@dataclass(frozen=True, slots=True)
class Piece:
    """One parameter's local part.

    `values` and `grad` are flat (1-D) and share storage with the program's tensors. `grad` is None when there is none.
    `replicas` is how many ranks hold the same piece. `numel` counts the whole parameter. `handles` are the ids
    of the tensors an optimizer may hold for it: the parameter itself, or the flat parameter it is part of.
    """

    fqn: str
    values: Tensor
    grad: Tensor | None
    index: GlobalIndex
    replicas: int
    numel: int
    handles: tuple[int, ...]


def pieces(roots: list[tuple[int, nn.Module]], world: int) -> Iterator[Piece]:
    """All parameters under the FSDP roots: the FSDP1 and FSDP2 ones, then those that FSDP leaves alone."""
    for number, root in roots:
        managed: set[int] = set()
        for piece in _managed(root, f"{number}:", world):
            managed.update(piece.handles)
            yield piece
        for name, param in root.named_parameters():
            # An FSDP2 unit that is unsharded right now shows plain twins of its parameters under the same names.
            if id(param) in managed or name.endswith("_flat_param") or _is_freed(param):
                continue
            if not _is_twin(root, param):
                yield plain_piece(f"{number}:{clean(name)}", param, world)


def plain_piece(fqn: str, param: Tensor, world: int) -> Piece:
    """A parameter that no FSDP unit manages; each rank is taken to hold the same."""
    if isinstance(param, DTensor):
        grad = param.grad
        local_grad = grad.to_local().reshape(-1) if isinstance(grad, DTensor) else None
        values = local_part(param).detach().reshape(-1)
        return Piece(fqn, values, local_grad, of_dtensor(param), replicas_of(param, world), param.numel(), (id(param),))
    count = param.numel()
    flat_grad = None if param.grad is None else param.grad.detach().reshape(-1)
    return Piece(fqn, param.detach().reshape(-1), flat_grad, contiguous(0, count), world, count, (id(param),))


def squared_norm(some: Iterable[Piece]) -> Tensor:
    """This rank's share of the squared gradient norm: replicas count once over all ranks. A 0-dim float64 tensor.

    It stays on the device: reading it here would make the program wait for the GPU.
    """
    norms: list[Tensor] = []
    for piece in some:
        if piece.grad is not None and piece.grad.numel():
            norm = torch.linalg.vector_norm(piece.grad.detach(), dtype=torch.float64)
            norms.append(
                (norm * norm / piece.replicas).cpu() if piece.grad.device.type == "cpu" else norm**2 / piece.replicas
            )
    return (
        torch.stack([norm.to(norms[0].device) for norm in norms]).sum()
        if norms
        else torch.zeros((), dtype=torch.float64)
    )


def _managed(root: nn.Module, prefix: str, world: int) -> Iterator[Piece]:
    for name, handle in fsdp1_handles(root):
        if not _is_freed(handle.flat_param) and not _is_freed(getattr(handle.flat_param, "_local_shard", None)):
            yield from _flat_pieces(prefix, name, handle, world)
    names = module_names(root)
    for _, group in fsdp2_groups(root):
        for fsdp_param in group.fsdp_params:
            fqn = prefix + fsdp2_names(fsdp_param, names)[0]
            sharded = fsdp2_sharded(fsdp_param)
            if not _is_freed(sharded):
                yield _dtensor_piece(fqn, sharded, world)


def _is_freed(tensor: Tensor | None) -> bool:
    """Whether the program has given the memory back, of a frozen model that it is done with."""
    local = local_part(tensor) if tensor is not None else None
    return local is not None and bool(local.numel()) and not local.untyped_storage().nbytes()


def _dtensor_piece(fqn: str, param: DTensor, world: int) -> Piece:
    grad = param.grad
    local_grad = grad.to_local().detach().reshape(-1) if isinstance(grad, DTensor) else None
    local = local_part(param).detach()
    return Piece(
        fqn, local.reshape(-1), local_grad, of_dtensor(param), replicas_of(param, world), param.numel(), (id(param),)
    )


def _flat_pieces(prefix: str, name: str, handle: Any, world: int) -> Iterator[Piece]:
    flat = handle.flat_param
    sharded = bool(handle.uses_sharded_strategy)
    replicas = max(1, world // handle.process_group.size()) if sharded else world
    values = getattr(flat, "_local_shard", flat).detach().reshape(-1)
    flat_grad = None if handle._use_orig_params else _local_grad(handle, values.numel())
    originals = flat._params or [None] * len(flat._fqns)
    spans = _sharded_spans(flat) if sharded else _whole_spans(flat)
    rows = zip(fsdp1_names(name, flat), flat._numels, spans, originals, strict=True)
    for names, numel, (start, count, offset), original in rows:
        if handle._use_orig_params:
            grad = _original_grad(original, count)
        else:
            grad = None if flat_grad is None else flat_grad[start : start + count]
        owners = (id(flat),) if original is None else (id(original), id(flat))
        piece = values[start : start + count]
        yield Piece(prefix + names[0], piece, grad, contiguous(offset, count), replicas, int(numel), owners)


def _sharded_spans(flat: Any) -> list[tuple[int, int, int]]:
    """(position in the local shard, count, position in the parameter) of each parameter; (0, 0, 0) if elsewhere."""
    return [
        (info.offset_in_shard, info.numel_in_shard, info.intra_param_start_idx) if info.in_shard else (0, 0, 0)
        for info in flat._shard_param_infos
    ]


def _whole_spans(flat: Any) -> list[tuple[int, int, int]]:
    """The same for NO_SHARD, where each rank holds the whole flat parameter, alignment padding included."""
    ends = list(accumulate(flat._numels_with_padding))
    starts = [0, *ends[:-1]]
    return [
        (start, size, 0)
        for start, size, padding in zip(starts, flat._numels_with_padding, flat._is_padding_mask, strict=True)
        if not padding
    ]


def _local_grad(handle: Any, count: int) -> Tensor | None:
    """The flat gradient, if it has the local shard's size: inside `no_sync` it has the size of the whole parameter."""
    if handle.flat_param.grad is None:  # cleared; with CPU offload the handle itself still has the old one
        return None
    grad = handle.sharded_grad
    if not isinstance(grad, Tensor) or grad.numel() != count:
        return None
    return grad.detach().reshape(-1)


def _original_grad(original: Tensor | None, count: int) -> Tensor | None:
    if original is None or original.grad is None or original.grad.numel() != count:
        return None
    return original.grad.detach().reshape(-1)


def _is_twin(root: nn.Module, param: Tensor) -> bool:
    return any(
        param is getattr(fsdp_param, "_unsharded_param", None)
        for _, group in fsdp2_groups(root)
        for fsdp_param in group.fsdp_params
    )
