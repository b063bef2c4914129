"""What the programs of this folder share: how one is put together, and where it lies before and after its rewrite."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ..helpers import SUPPORT, Result

IMPORTS = {
    name: f"from {module} import {name}"
    for module, names in {
        "contextlib": "ExitStack nullcontext",
        "copy": "deepcopy",
        "functools": "partial",
        "torch": "nn",
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper": "CheckpointWrapper "
        "apply_activation_checkpointing",
        "torch.distributed.device_mesh": "DeviceMesh init_device_mesh",
        "torch.distributed.fsdp": "BackwardPrefetch CPUOffload MixedPrecision ShardingStrategy",
        "torch.distributed.fsdp._runtime_utils": "_lazy_init _reshard",
        "torch.distributed.fsdp._traversal_utils": "_get_fsdp_handles",
        "torch.distributed.fsdp.sharded_grad_scaler": "ShardedGradScaler",
        "torch.distributed.fsdp.wrap": "CustomPolicy ModuleWrapPolicy _or_policy always_wrap_policy "
        "lambda_auto_wrap_policy size_based_auto_wrap_policy transformer_auto_wrap_policy",
        "models": "Attention BatchNormed Block BufferFree ChannelsLast Frozen Nested Outer Plain Rootless "
        "SelfNested Shared Masked Speaker Tied TiedTable Unused",
    }.items()
    for name in names.split()
} | {
    "dataclass": "from dataclasses import dataclass",
    "dist": "import torch.distributed as dist",
    "math": "import math",
    "os": "import os",
    "torch": "import torch",
    "FSDP": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP",
}
MODELS = (Path(__file__).parents[1] / "support" / "models.py").read_text()


def with_imports(text: str) -> str:
    """The program with the imports of the names that it uses."""
    used = set(re.findall(r"(?<!\.)\b\w+", text))
    return "\n".join(line for word, line in IMPORTS.items() if word in used) + "\n\n\n" + text


def models_of(program: str) -> str:
    """The classes that a program uses: one that only stands in the file could change how it is rewritten."""
    statements = ast.parse(MODELS).body
    found: set[str] = set()
    wanted = {node.id for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Name)}
    while wanted:
        used = [s for s in statements if isinstance(s, ast.ClassDef) and s.name in wanted - found]
        found |= wanted
        wanted = {node.id for s in used for node in ast.walk(s) if isinstance(node, ast.Name)} - found
    kept = [s for s in statements if not isinstance(s, ast.ClassDef) or s.name in found]
    return "\n".join(ast.unparse(statement) for statement in kept) + "\n"


def folder_of(name: str) -> str:
    """The folder of the program of this name."""
    return re.sub(r"\W+", "_", name)


def write(result: Result, folder: Path) -> None:
    """The program before and after its rewrite."""
    folder.mkdir()
    (folder / "before.py").write_text(result.before["train.py"])
    (folder / "after.py").write_text(result.after["train.py"])
    if SUPPORT in result.after:
        (folder / SUPPORT).write_text(result.after[SUPPORT])
