"""How a program ends, and whose fault that is: the probe stands between it and torch, and is in most tracebacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.verify import Failure
from fsdp_migrate.verify.outcome import outcome
from fsdp_migrate.verify.records import read_run
from fsdp_migrate.verify.watch import Watched
from tests.forks import ROOT

TROUBLES = {
    "a tensor method": "torch.ones(2).view(3)",
    "an operator": "torch.ones(2) @ torch.ones(3)",
    "a device of a tensor": "torch.ones(2, device='cuda').view(3)",
    "a factory": "torch.empty(-1, device='cuda')",
    "a conversion": "torch.ones(2).to('no such device')",
    "cuda()": "torch.ones(2).cuda().view(3)",
    "a module": "nn.Linear(2, 3).cuda()(torch.ones(1, 5, device='cuda'))",
    "a missing key": "nn.Linear(2, 3).load_state_dict({})",
    "backward": "torch.ones(2, requires_grad=True).backward()",
    "autograd.grad": "torch.autograd.grad(torch.ones(1), torch.ones(1))",
    "an autograd function": "Broken.apply(torch.ones(1, requires_grad=True)).backward()",
    "a hook of a tensor": "t = torch.ones(1, requires_grad=True); t.register_hook(lambda g: g.view(7)); t.backward()",
    "a hook of a module": "m = nn.Linear(2, 3); m.register_forward_hook(lambda *a: 1 / 0); m(torch.ones(1, 2))",
    "a collective": "dist.all_reduce(torch.ones(1))",
    "a barrier": "dist.barrier()",
    "FSDP": "FSDP(nn.Linear(2, 3))",
    "a mesh": "dist.device_mesh.init_device_mesh('cuda', (3, 5))",
    "an optimizer": "torch.optim.SGD([], 0.1)",
    "a step": "o = torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1); o.step(lambda: 1 / 0)",
    "a file": "torch.load('no such file')",
    "a device": "torch.device('no such device')",
    "autocast": "torch.autocast('cuda', dtype='no dtype').__enter__()",
    "an import": "import no_such_module",
    "its own": "raise KeyError('mine')",
    "a loader": "list(torch.utils.data.DataLoader([1], batch_size=-1))",
    "a loader's worker": "list(torch.utils.data.DataLoader(Data(), num_workers=1))",
    "a module of its own": "import broken",
    "a hook before forward": "m = nn.Linear(2, 3); m.register_forward_pre_hook(lambda *a: 1 / 0); m(torch.ones(1, 2))",
    "a hook of backward": "m = nn.Linear(2, 3); m.register_full_backward_hook(lambda *a: 1 / 0); m(X).sum().backward()",
    "a hook of a gradient": "m = nn.Linear(2, 3); m.bias.register_post_accumulate_grad_hook(lambda p: 1 / 0); "
    "m(X).sum().backward()",
    "hooks of saved tensors": "with torch.autograd.graph.saved_tensors_hooks(lambda t: 1 / 0, id): torch.exp(X)",
    "a hook of a state dict": "m = nn.Linear(2, 3); m.register_state_dict_post_hook(lambda *a: 1 / 0); m.state_dict()",
    "checkpointing": "torch.utils.checkpoint.checkpoint(lambda x: 1 / 0, X, use_reentrant=False)",
    "a tensor of its own": "torch.add(Own(), 1)",
    "saving": "torch.save(lambda: 1, 'saved')",
    "saving a distributed checkpoint": "torch.distributed.checkpoint.save({}, checkpoint_id='/dev/null/x')",
    "a kernel of its own": "torch.ops.mine.kernel(X)",
    "a missing attribute": "nn.Linear(2, 3).weights",
    "an end of data": "next(iter([]))",
    "a recursion": "again = lambda: again(); again()",
    "an assertion": "assert False",
    "a group": "raise ExceptionGroup('several', [ValueError('one')])" if sys.version_info >= (3, 11) else "1 / 0",
    "an error that cannot be printed": "raise Unprintable",
    "Ctrl-C": "raise KeyboardInterrupt",
}
ENDS = {
    "an exit code": ("sys.exit(3)", "exit", 3),
    "an exit with words": ("sys.exit('no data')", "exit", 1),
    "an exit without a fault": ("sys.exit()", "finished", 0),
    "a finalizer": ("Final()", "finished", None),
    "a thread": ("t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()", "finished", None),
    "swallowed": ("try: X.view(7)\nexcept RuntimeError: pass", "finished", None),
}
"""What ends a program without an exception, or does not end it: how, and with which code."""
SPAWNED = "torch.multiprocessing.start_processes(spawned, nprocs=2, start_method='fork')"
PROGRAM = """
import sys, threading, torch, torch.distributed as dist, torch.distributed.checkpoint
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        return grad.view(5)

class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args, **kwargs):
        raise ValueError("mine")

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, index):
        return torch.ones(2).view(3)

class Unprintable(Exception):
    def __str__(self):
        return 1 / 0

class Final:
    def __del__(self):
        torch.ones(2).view(3)

def spawned(rank):
    if rank == 1:
        torch.ones(2).cuda().view(3)

X = torch.ones(1, 2, requires_grad=True)
exec(sys.argv[1])
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each trouble in a fork of one process that has the probe; its records lie in a folder of its name."""
    home = tmp_path_factory.mktemp("blame")
    (home / "train.py").write_text(PROGRAM)
    (home / "broken.py").write_text("import torch\ntorch.ones(2).view(3)\n")
    codes = {**TROUBLES, **{name: code for name, (code, _, _) in ENDS.items()}}
    plan = {name: ["--out", str(home / name), "--redirect", "train.py", code] for name, code in codes.items()}
    plan["spawned"] = ["--out", str(home / "spawned"), "--redirect", "--processes", "2", "train.py", SPAWNED]
    (home / "plan.json").write_text(json.dumps(plan))
    subprocess.run([sys.executable, "-m", "tests.verify.test_blame", str(home)], cwd=ROOT, check=True, timeout=300)
    return home


def end_of(folder: Path, rank: int = 0) -> dict[str, Any]:
    """The last record of a rank."""
    last = json.loads((folder / f"rank-{rank:05d}.jsonl").read_text().splitlines()[-1])
    assert last["kind"] == "end"
    return dict(last)


@pytest.mark.dist
@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_the_program_raises_is_its_own(home: Path, trouble: str) -> None:
    end = end_of(home / trouble)
    assert end["reason"] == "exception"
    assert end["ours"] is False


@pytest.mark.dist
@pytest.mark.parametrize("ending", ENDS)
def test_an_end_that_is_no_exception(home: Path, ending: str) -> None:
    _, reason, code = ENDS[ending]
    end = end_of(home / ending)
    assert (end["reason"], end.get("code")) == (reason, code)


@pytest.mark.dist
def test_what_a_spawned_rank_raises_is_its_own(home: Path) -> None:
    end = end_of(home / "spawned", 1)
    assert end["ours"] is False
    failure = outcome("original", Watched(1, read_run(home / "spawned"), None, {}, ""), 2)
    assert isinstance(failure, Failure)
    assert failure.rank == 1
    assert "rank 1 of the original program raised RuntimeError: shape '[3]' is invalid" in failure.message
    assert "in spawned" in failure.traceback
    assert "fault of fsdp-migrate" not in failure.hint


def test_what_the_probe_raises_is_the_probes() -> None:
    from fsdp_migrate.probe.layout import of_dtensor
    from fsdp_migrate.probe.passing import is_ours, passed_on

    with pytest.raises(AttributeError) as ours:
        passed_on(of_dtensor, "no tensor")
    assert is_ours(ours.value)
    with pytest.raises(ZeroDivisionError) as theirs:
        passed_on(lambda: 1 / 0)
    assert not is_ours(theirs.value)


def _each(home: Path) -> None:
    import contextlib
    import os

    import torch.multiprocessing

    from fsdp_migrate.probe.redirect import redirect_cuda_to_cpu
    from fsdp_migrate.probe.session import run_program
    from fsdp_migrate.probe.settings import parse

    redirect_cuda_to_cpu(1)
    os.chdir(home)
    for arguments in json.loads((home / "plan.json").read_text()).values():
        pid = os.fork()
        if not pid:
            with contextlib.suppress(
                torch.multiprocessing.ProcessRaisedException, torch.multiprocessing.ProcessExitedException
            ):
                run_program(*parse(arguments))  # returns in the parent of spawned ranks only
            os._exit(0)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    _each(Path(sys.argv[1]))
