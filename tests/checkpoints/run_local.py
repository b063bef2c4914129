"""Runs the programs of `local`: FSDP1's saves and trains on, the rewritten one resumes from its files.

usage: torchrun -m tests.checkpoints.run_local FOLDER PART, with `net` on the path; FOLDER holds `before/` and `after/`
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.harness import loaded, run_all

from .local import PROGRAMS

FOLDER = Path(sys.argv[1])


def run_program(name: str) -> dict[str, Any]:
    before, after = (loaded(FOLDER / side / name / "program.py") for side in ("before", "after"))
    old, new = (str(FOLDER / f"{side}-{name}-{os.environ['WORLD_SIZE']}") for side in ("old", "new"))
    seen = {"whole": before.main(old, resume=False), "rest": after.main(old, resume=True)}
    seen["own whole"] = after.main(new, resume=False)
    seen["own rest"] = after.main(new, resume=True)
    return seen


if __name__ == "__main__":
    run_all({name: (int(os.environ["WORLD_SIZE"]), partial(run_program, name)) for name in PROGRAMS})
