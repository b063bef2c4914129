"""Stands in for the program's main module in a child that `multiprocessing` spawns, and runs it then.

Python runs the main module again in each such child, as `__mp_main__`, before the function that the child is there for:
`assert torch.cuda.is_available()` at its top would fail where CUDA is redirected.
"""

from __future__ import annotations

import runpy

from fsdp_migrate.probe.spawn import prepare_child, spawned_main

if __name__ == "__mp_main__":
    settings, is_path, main = spawned_main()
    prepare_child(settings)
    run = runpy.run_path if is_path else runpy.run_module
    globals().update(run(main, run_name="__mp_main__"))
