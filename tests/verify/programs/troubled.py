"""An FSDP1 program that gets into the trouble `options.json` names, at its third step, mostly on rank 1."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

OPTIONS = json.loads(Path(__file__).with_name("options.json").read_text())
TROUBLE = OPTIONS["trouble"]


class OfOurOwn(ValueError):
    """Raised by rank 1."""


def get_into_trouble(rank: int) -> None:
    if TROUBLE == "raise" and rank == 1:
        raise OfOurOwn("no such batch")
    if TROUBLE == "hang" and rank == 1:
        time.sleep(1000)
    if TROUBLE == "exit" and rank == 1:
        sys.exit(3)
    if TROUBLE == "disk" and rank == 1:  # no file may grow any more
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if TROUBLE == "kill" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if TROUBLE == "crash once" and rank == 1 and not Path(os.environ["CRASHED"]).exists():
        Path(os.environ["CRASHED"]).touch()
        os.kill(os.getpid(), signal.SIGSEGV)


def main() -> None:
    if TROUBLE == "port":
        os.environ["MASTER_PORT"] = os.environ["BUSY_PORT"]
        os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    if TROUBLE != "plain":
        model = FSDP(model, device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if TROUBLE == "absolute":
        Path(OPTIONS["outside"]).write_text("written")
    for step in range(6):
        try:
            if TROUBLE.startswith("leave") and rank == 1 and step == 2:
                break
            loss = model(torch.randn(4, 8)).pow(2).mean()
            if TROUBLE == "no loss":
                for param in model.parameters():
                    param.grad = torch.zeros_like(param)
            else:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        except RuntimeError as error:
            if TROUBLE != "leave":
                raise
            print("swallowed", error)
            break
        except:  # noqa: E722
            if TROUBLE != "bare except":
                raise
        if step == 2:
            get_into_trouble(rank)
    Path("checkpoint.pt").write_text("saved in the working directory")


if __name__ == "__main__":
    main()
