"""How a training process is watched from outside: it dies with its parent, and dumps its stacks on a signal."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Linux: get SIGKILL when the parent ends. torchrun starts its workers in sessions of their own, so that killing
    its process group does not reach them."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def dump_stacks_on_signal(out: Path, rank: int) -> None:
    """SIGUSR1 writes the Python stack of each thread to `rank-00000.stack`; a crash, to the output."""
    faulthandler.enable()
    if hasattr(signal, "SIGUSR1"):
        file = (out / f"rank-{rank:05d}.stack").open("w")  # stays open for the life of the process
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
