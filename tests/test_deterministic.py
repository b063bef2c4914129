"""The same program gives the same bytes, however it is named, listed, hashed or read in parallel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fsdp_migrate.config import Config
from fsdp_migrate.project import imports
from fsdp_migrate.render.view import Command, View
from fsdp_migrate.session import examine, gather

ROOT = Path(__file__).parent.parent
FILES = {
    "train.py": "from lib.wrap import wrap\nfrom lib.steps import step\n\nmodel = wrap(object())\nstep(model)\n",
    "evaluate.py": "from lib.wrap import wrap\n\nmodel = wrap(object())\nmodel.module.generate()\n",
    "lib/__init__.py": "",
    "lib/wrap.py": """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy

def wrap(model, strategy=ShardingStrategy.FULL_SHARD, **options):
    return FSDP(model, sharding_strategy=strategy, mixed_precision=MixedPrecision(), **options)
""",
    "lib/steps.py": """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def step(model, other=None):
    with model.no_sync():
        model(1).backward()
    model.clip_grad_norm_(1.0)
    with FSDP.summon_full_params(model):
        print(model)
    for unit in FSDP.fsdp_modules(model):
        unit._handle = None
""",
    "lib/chosen.py": """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn import Linear

def wrap(model, args):
    if args.nodes:
        strategy = ShardingStrategy.HYBRID_SHARD if args.zero == 3 else ShardingStrategy._HYBRID_SHARD_ZERO2
    else:
        strategy = ShardingStrategy.FULL_SHARD if args.zero == 3 else ShardingStrategy.SHARD_GRAD_OP
    print(strategy)
    policy, device = ModuleWrapPolicy({Linear}), torch.cuda.current_device()
    return FSDP(model, auto_wrap_policy=policy, sharding_strategy=strategy, device_id=device)
""",
    "lib/again.py": """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def step(model):
    return FSDP(model, auto_wrap_policy=model.policy)
""",
}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def answer(paths: list[Path], jobs: int = 1) -> tuple[object, ...]:
    """What a run finds and writes, in its order."""
    read = gather(paths, Config(jobs=jobs))
    view: View = examine(read, Config(jobs=jobs), Command.REWRITE, Path.cwd())
    assert len(view.report.findings) > 5
    assert len(view.report.changes) > 2
    return tuple(read.sources), view.report.findings, view.report.changes, view.report.errors


@pytest.mark.parametrize("jobs", [2, 4])
def test_any_number_of_processes(program: Path, monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    alone = answer([program])
    monkeypatch.setattr(imports, "WORTH_PROCESSES", 1)
    assert answer([program], jobs) == alone


def test_any_order_of_paths(program: Path) -> None:
    paths = [program / name for name in FILES]
    named = answer(paths)
    assert answer(paths[::-1]) == named
    assert answer([*paths[2:], *paths]) == named
    folders = [program / "lib", program / "train.py", program / "evaluate.py"]
    assert answer(folders) == answer(folders[::-1])


def test_any_order_of_a_listing(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_it_is = answer([program])
    listed = os.scandir
    for order in (lambda entry: entry.name, lambda entry: [-ord(letter) for letter in entry.name]):
        monkeypatch.setattr(os, "scandir", lambda folder, order=order: sorted(listed(folder), key=order))
        assert answer([program]) == as_it_is


def test_any_hash_seed(program: Path) -> None:
    def output(seed: str) -> bytes:
        done = subprocess.run(
            [sys.executable, "-m", "fsdp_migrate", "rewrite", "--diff", "--output-format", "json", "."],
            cwd=program,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            capture_output=True,
        )
        assert done.returncode == 1
        assert done.stdout
        return done.stdout + done.stderr

    assert len({output(seed) for seed in ("0", "1", "2", "5")}) == 1
