"""The global switches of torch that change results; both sides of a comparison must agree on them."""

from __future__ import annotations

import torch
import torch.distributed as dist


def numeric_flags() -> dict[str, object]:
    """Read when the first step is made, by when the program has set what it sets."""
    groups = dist.is_available() and dist.is_initialized()
    return {
        "torch": torch.__version__,
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "default_dtype": str(torch.get_default_dtype()),
        # By device, whether the program named one backend or several: "cuda:nccl", "cpu:gloo,cuda:nccl".
        "backend": dist.get_backend_config() if groups else None,
        "world": dist.get_world_size() if groups else None,
    }
