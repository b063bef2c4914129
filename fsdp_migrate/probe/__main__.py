"""`python -m fsdp_migrate.probe --out DIR --max-steps K [-m] target args…`: run a program as `__main__`, watched."""

from __future__ import annotations

import os
import sys

from fsdp_migrate.probe.process import die_with_parent
from fsdp_migrate.probe.settings import parse

if __name__ == "__main__":
    die_with_parent()
    given, target = parse(sys.argv[1:])
    if given.redirect:
        from fsdp_migrate.probe.redirect import redirect_cuda_to_cpu

        redirect_cuda_to_cpu(given.processes)
    from fsdp_migrate.probe.session import run_program

    os.environ.setdefault("WANDB_MODE", "offline")
    run_program(given, target)
