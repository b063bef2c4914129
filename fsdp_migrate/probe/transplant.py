"""Moves initial weights from one run into another without a collective: each rank writes its pieces, and reads all.

Both sides know every element by parameter name and global position, so that FSDP1's flat chunks land in FSDP2's row
shards whatever the two layouts are.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from fsdp_migrate.probe.views import Piece


def save_weights(directory: Path, rank: int, root: int, some: list[Piece]) -> None:
    """Write this rank's pieces of one FSDP root: name -> (global positions, values), on the CPU."""
    directory.mkdir(parents=True, exist_ok=True)
    device = torch.device("cpu")
    held = {
        piece.fqn: (piece.numel, piece.index(0, piece.values.numel(), device), piece.values.detach().cpu().clone())
        for piece in some
    }
    torch.save(held, directory / f"root-{root}-rank-{rank:05d}.pt")


def load_weights(directory: Path, root: int, some: list[Piece]) -> int:
    """Fill the pieces in place from what all ranks of the other run wrote. Returns how many parameters were filled.

    A parameter the other run does not have, or has in another size, is left alone; check N0 will show it.
    """
    files = sorted(directory.glob(f"root-{root}-rank-*.pt"))
    held = [torch.load(file, map_location="cpu", weights_only=True, mmap=True) for file in files]
    filled = 0
    for piece in some:
        whole = _assemble([part[piece.fqn] for part in held if piece.fqn in part], piece.numel)
        if whole is None:
            continue
        wanted = piece.index(0, piece.values.numel(), torch.device("cpu"))
        piece.values.copy_(whole[wanted].to(piece.values.dtype))
        filled += 1
    return filled


def _assemble(parts: list[tuple[int, Tensor, Tensor]], numel: int) -> Tensor | None:
    if not parts or any(size != numel for size, _, _ in parts):
        return None
    whole = torch.zeros(numel, dtype=parts[0][2].dtype)
    for _, positions, values in parts:
        whole[positions] = values
    return whole
