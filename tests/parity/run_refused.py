"""Runs every program before and after its rewrite, in one process group, and writes what they ended with.

usage: torchrun -m tests.parity.run_refused FOLDER PART; FOLDER holds `NAME/before.py` and `NAME/after.py` for each
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from fsdp_migrate.probe.redirect import redirect_cuda_to_cpu

from ..support import models
from ..support.harness import loaded, run_all
from .run_around import trained


def end_of(path: Path) -> str:
    """The error that a program ends with; empty where it trains."""
    try:
        trained(loaded(path).main, 2)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def run(folder: Path) -> list[str]:
    return [end_of(folder / "before.py"), end_of(folder / "after.py")]


if __name__ == "__main__":
    sys.modules["models"] = models
    redirect_cuda_to_cpu(2)  # FSDP1 wants an accelerator
    folder = Path(sys.argv[1])
    run_all({each.name: (2, partial(run, each)) for each in sorted(folder.iterdir()) if each.is_dir()})
