"""The command line and the environment of one run."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from fsdp_migrate.verify.request import CheckRequest, Side
from fsdp_migrate.verify.sources import always_spawns, imported, mention, program_files, reads_rank


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one side. `perturb` seeds the one-ulp perturbation; `save_init`/`load_init` move initial weights."""

    side: Side
    name: str
    out: Path
    scratch: Path
    perturb: int | None = None
    save_init: Path | None = None
    load_init: Path | None = None


def spawns_itself(request: CheckRequest, side: Side) -> bool:
    """Whether the program starts its own processes (`mp.spawn`) and must not be put under torchrun."""
    if request.spawns != "auto":
        return request.spawns == "yes"
    files = _files(request, side)
    starts = mention(files, ("mp.spawn(", "multiprocessing.spawn(", "start_processes("))
    return starts and (always_spawns(files[0]) or not (reads_rank(files) or mention(files, ("torchrun",))))


def redirects(request: CheckRequest) -> bool:
    """Whether CUDA and NCCL calls are redirected to the CPU and gloo, on both sides or on none."""
    if request.device != "cpu" or request.redirect == "off":
        return False
    files = [*_files(request, "original"), *_files(request, "rewritten")]
    return request.redirect == "on" or mention(files, ("cuda", "nccl"))


def _files(request: CheckRequest, side: Side) -> list[Path]:
    home = request.tree(side) / request.cwd if request.as_module else request.tree(side)
    return program_files(home, request.target(side), request.as_module)


def command(request: CheckRequest, run: Run) -> list[str]:
    """The whole command, under torchrun, the caller's launcher, or plain Python for a program that spawns."""
    probe = ["-m", "fsdp_migrate.probe", *probe_words(request, run)]
    if request.launcher is not None:
        line = shlex.join([request.python, *probe])
        return ["bash", "-c", request.launcher.replace("{probe}", line).replace("{n}", str(request.world_size))]
    if spawns_itself(request, run.side) or request.dry_run_world is not None:
        return [request.python, *probe]
    where = [*_meeting_place(request, run), *request.torchrun_args]
    count = ["--nproc-per-node", str(request.world_size)]
    return [request.python, "-m", "torch.distributed.run", *where, *count, *probe]


def can_fork(request: CheckRequest, side: Side) -> bool:
    """Whether the ranks can be forked from one process: all on this machine, and no CUDA, which a fork cannot use."""
    plain = request.launcher is None and request.nodes == 1 and not request.torchrun_args
    return plain and request.device == "cpu" and request.dry_run_world is None and not spawns_itself(request, side)


_WORTH_IT = ("numpy", "scipy", "einops", "safetensors", "transformers", "peft", "timm")
"""Libraries that take long to import, and neither start threads nor look at their rank when they are."""


def preload(request: CheckRequest) -> list[list[str]]:
    """What both programs import of these: modules, with the names that are imported from each."""
    found: dict[str, set[str]] = {}
    for file in {*_files(request, "original"), *_files(request, "rewritten")}:
        for module, names in imported(file):
            if module.split(".")[0] in _WORTH_IT:
                found.setdefault(module, set()).update(names)
    return [[module, *sorted(names)] for module, names in sorted(found.items())]


def probe_words(request: CheckRequest, run: Run) -> list[str]:
    """The probe's own command line."""
    return [*probe_options(request, run), *_target(request, run.side)]


def _meeting_place(request: CheckRequest, run: Run) -> list[str]:
    """How the processes find each other. What the caller gives to torchrun itself comes later, and so goes first."""
    if request.nodes == 1:
        own = any(word.startswith(("--rdzv", "--master", "--standalone")) for word in request.torchrun_args)
        return [] if own else ["--standalone"]
    # An id for each run: a store that outlives a run would take the next one for a latecomer.
    words = ["--nnodes", str(request.nodes), "--rdzv-id", f"fsdp-migrate-{run.name}".replace(" ", "-")]
    if request.node_rank is not None:
        words += ["--node-rank", str(request.node_rank)]
    if request.rdzv_endpoint is not None:
        words += ["--rdzv-backend", "c10d", "--rdzv-endpoint", request.rdzv_endpoint]
    return words


def probe_options(request: CheckRequest, run: Run) -> list[str]:
    options = ["--out", str(run.out), "--max-steps", str(request.steps), "--device", request.device]
    if request.dry_run_world is not None:
        options += ["--dry-run-world", str(request.dry_run_world)]
    options += [
        "--scratch",
        str(run.scratch),
        *(word for tree in dict.fromkeys(request.trees) for word in ("--tree", str(tree))),
    ]
    options += ["--processes", str(request.world_size)]
    if request.seed is not None:
        options += ["--seed", str(request.seed)]
    if redirects(request):
        options.append("--redirect")
    if run.perturb is not None:
        options += ["--perturb", str(run.perturb)]
    if run.save_init is not None:
        options += ["--save-init", str(run.save_init)]
    if run.load_init is not None:
        options += ["--load-init", str(run.load_init)]
    return options


def environment(request: CheckRequest) -> dict[str, str]:
    """The caller's environment, with what makes two runs comparable and keeps them off the network's trackers."""
    env = dict(os.environ)
    env.update(PYTHONHASHSEED="0", WANDB_MODE="offline", CUBLAS_WORKSPACE_CONFIG=":4096:8")
    env.setdefault("OMP_NUM_THREADS", "1")
    env.setdefault("TOKENIZERS_PARALLELISM", "false")
    if request.device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    package_home = str(Path(__file__).resolve().parents[2])
    if "site-packages" not in package_home:  # run from a checkout: the children must find it too
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [package_home, env.get("PYTHONPATH")]))
    env.update(request.env)
    return env


def _target(request: CheckRequest, side: Side) -> list[str]:
    """The program, behind its arguments in one word: torchrun takes what it sees of options for its own, and refuses
    those that two of its own begin with (`--logs`)."""
    words = ["--program-args", json.dumps(request.args)] if request.args else []
    target = request.target(side)
    return [*words, "-m", target] if request.as_module else [*words, os.path.relpath(target, request.cwd)]
