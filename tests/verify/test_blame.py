"""Whose fault an exception is: the probe stands between a program and torch, and its frames are in most tracebacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
}
PROGRAM = """
import sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        return grad.view(5)

exec(sys.argv[1])
"""


@pytest.fixture(scope="module")
def blamed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    """Each trouble in a fork of one process that has the probe."""
    home = tmp_path_factory.mktemp("blame")
    (home / "train.py").write_text(PROGRAM)
    plan = {name: ["--out", str(home / name), "--redirect", "train.py", code] for name, code in TROUBLES.items()}
    (home / "plan.json").write_text(json.dumps(plan))
    subprocess.run([sys.executable, "-m", "tests.verify.test_blame", str(home)], cwd=ROOT, check=True, timeout=300)
    ends = {name: (home / name / "rank-00000.jsonl").read_text().splitlines()[-1] for name in TROUBLES}
    return {name: json.loads(end).get("ours") for name, end in ends.items()}


@pytest.mark.dist
@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_the_program_raises_is_its_own(blamed: dict[str, bool], trouble: str) -> None:
    assert blamed[trouble] is False


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
    import os

    from fsdp_migrate.probe.redirect import redirect_cuda_to_cpu
    from fsdp_migrate.probe.session import run_program
    from fsdp_migrate.probe.settings import parse

    redirect_cuda_to_cpu(1)
    os.chdir(home)
    for arguments in json.loads((home / "plan.json").read_text()).values():
        pid = os.fork()
        if not pid:
            run_program(*parse(arguments))
        os.waitpid(pid, 0)


if __name__ == "__main__":
    _each(Path(sys.argv[1]))
