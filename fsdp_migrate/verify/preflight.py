"""Can this machine run what was asked? Found out in a subprocess, because the parent side imports no torch."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from fsdp_migrate.verify.launch import spawns_itself
from fsdp_migrate.verify.report import Failure
from fsdp_migrate.verify.request import CheckRequest

_QUESTION = """
import json
try:
    import torch
except ImportError as error:
    print(json.dumps({"error": str(error)}))
else:
    import torch.distributed as dist
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gloo = dist.is_available() and dist.is_gloo_available()
    print(json.dumps({"torch": torch.__version__, "devices": devices, "gloo": gloo}))
"""
_OLDEST = (2, 6)
_OLDEST_ON_CPU = (2, 9)
"""Before, gloo adds up the gradients that `fully_shard` has averaged, without an error: measured on 2.7.1 and 2.8.0."""
_OLDEST_DRY_RUN = (2, 7)
"""The CPU streams of torch 2.6 lack what `fully_shard` asks of them; with that added, its backward raises."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the Python that will run the program has: torch's version (None: not importable), CUDA devices, gloo."""

    torch: str | None
    devices: int
    gloo: bool
    error: str = ""


def look(python: str, env: Mapping[str, str]) -> Machine:
    """Ask `python`, in the environment the run will have."""
    try:
        done = subprocess.run(
            [python, "-c", _QUESTION], capture_output=True, text=True, env={**os.environ, **env}, timeout=300
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Machine(None, 0, False, f"{python}: {error}")
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return Machine(None, 0, False, (done.stderr.strip().splitlines() or ["no answer"])[-1])
    if "error" in answer:
        return Machine(None, 0, False, answer["error"])
    return Machine(answer["torch"], answer["devices"], answer["gloo"])


def objection(request: CheckRequest, machine: Machine) -> Failure | None:
    """Why `request` cannot run on `machine`, and what to do instead. None: it can."""
    if machine.torch is None:
        return Failure(
            "preflight",
            f"torch cannot be imported by {request.python}: {machine.error}",
            'install it: pip install "fsdp-migrate[verify]", or name the Python that has it: --python PATH',
        )
    if _version(machine.torch) < _OLDEST:
        return Failure(
            "preflight", f"torch {machine.torch} has no public fully_shard", "a parity run needs torch 2.6 or newer"
        )
    apart = _nodes_apart(request)
    if apart:
        return Failure("preflight", *apart)
    if request.device == "cpu":
        oldest = _OLDEST_DRY_RUN if request.dry_run_world else _OLDEST_ON_CPU
        if _version(machine.torch) < oldest:
            message = f"fully_shard of torch {machine.torch} cannot train on the CPU, or not rightly"
            return Failure("preflight", message, f"it needs torch {oldest[0]}.{oldest[1]} or newer, or GPUs")
        if machine.gloo:
            return None
        return Failure("preflight", f"torch {machine.torch} was built without gloo", "use a build with gloo")
    if request.launcher is not None or machine.devices >= request.world_size:
        return None
    return _too_few_devices(request, machine)


def _nodes_apart(request: CheckRequest) -> tuple[str, str] | None:
    """(message, hint) if the nodes of a cluster job could not work together."""
    if not request.joins_others:
        return None
    if request.keep is None:
        return f"the {request.nodes} nodes have no folder to meet in", "give a --keep DIR that all of them share"
    if spawns_itself(request, "original") or spawns_itself(request, "rewritten"):
        return "the program starts its own processes, which are followed on one node only", "leave --nnodes out"
    return None


def missing_program(request: CheckRequest) -> Failure | None:
    """A script that is not there is said at once, not through a traceback of torchrun's."""
    if request.as_module:
        return None
    for side, script in (("original", request.original), ("rewritten", request.rewritten)):
        root = request.tree("original" if side == "original" else "rewritten")
        if not (root / script).exists() and not script.exists():
            return Failure(side, f"{script} does not exist", "give the path of the training script")
    return None


def _too_few_devices(request: CheckRequest, machine: Machine) -> Failure:
    n, count = request.world_size, machine.devices
    visible = {**os.environ, **request.env}.get("CUDA_VISIBLE_DEVICES", "unset")
    fewer = f"Use --run-gpus {count}, or " if count else "Use "
    return Failure(
        "preflight",
        f"--run-gpus {n} needs {n} CUDA device{'s' if n > 1 else ''}; this machine shows {count} "
        f"(CUDA_VISIBLE_DEVICES={visible}, torch {machine.torch}).",
        f"{fewer}--run-cpus {n} (checks numerics and structure on gloo with {n} processes; not NCCL, memory or speed), "
        "or --launcher to run on a cluster.",
    )


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split("+")[0].split(".")[:2]
    return int(major), int(minor)
