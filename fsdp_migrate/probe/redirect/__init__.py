"""Lets a program that is hard-coded for CUDA and NCCL run unmodified on the CPU and gloo.

Devices stay what the program made them (`torch.device("cuda", 0)` has the type "cuda", so that its branches are the
CUDA ones) and are translated where they are used. Limits: no custom CUDA kernels; torch.compile and CPU offload do
nothing; CUDA's random numbers, streams and memory do not exist; `tensor.is_cuda` tells the truth.

Renaming the PrivateUse1 backend to "cuda" is refused by torch, `torch.device` cannot be subclassed, and FakeTensorMode
fails on `.cuda()`; hence one function mode and patches.
"""

from __future__ import annotations

import torch

from fsdp_migrate.probe.redirect.amp import redirect_amp
from fsdp_migrate.probe.redirect.cuda_api import redirect_cuda_api
from fsdp_migrate.probe.redirect.distributed import redirect_distributed
from fsdp_migrate.probe.redirect.float8 import redirect_float8
from fsdp_migrate.probe.redirect.fsdp import redirect_fsdp
from fsdp_migrate.probe.redirect.modules import redirect_modules
from fsdp_migrate.probe.redirect.tensors import redirect_tensors


def redirect_cuda_to_cpu(processes: int) -> None:
    """Install before the program is imported. `processes` is what `torch.cuda.device_count()` answers.

    Does nothing where CUDA works.
    """
    if torch.cuda.is_available():
        return
    redirect_distributed()
    redirect_fsdp()  # before cuda_api: FSDP must be imported while CUDA still looks absent
    redirect_amp()
    redirect_modules()
    redirect_cuda_api(processes)
    redirect_tensors()
    redirect_float8()
