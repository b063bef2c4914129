"""How an observed run is ended: from inside, after enough steps, without waiting for the interpreter to wind down."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

_WAIT_FOR_PEERS_S = 10.0


class StopRun(BaseException):
    """Raised out of the optimizer's step when enough was seen.

    Not an Exception, so that `except Exception` in the program does not swallow it. `finally` blocks run.
    """


def mark_end(out: Path, rank: int) -> None:
    """Tell the other ranks, by a file, that this rank needs nothing more from them."""
    (out / f"rank-{rank:05d}.done").touch()


def leave(out: Path, world: int, code: int) -> None:
    """End the process once every rank has written its records, or after some seconds.

    A rank that goes early closes its connections while others may still read from them; and a gloo process that winds
    down in the usual way sometimes aborts in a destructor. So: wait on files, then `os._exit`.
    """
    deadline = time.monotonic() + _WAIT_FOR_PEERS_S
    while time.monotonic() < deadline and sum(1 for _ in out.glob("rank-*.done")) < world:
        time.sleep(0.02)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
