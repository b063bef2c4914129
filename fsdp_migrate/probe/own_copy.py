"""Each run imports the program from its own copy of the tree, also where Python was told to find it in the tree itself.

`pip install -e .` and `PYTHONPATH=.` name the user's tree, which is the rewritten one: without this the original's run
would import that too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path


def import_from(scratch: Path | None, trees: Sequence[Path]) -> None:
    """Point at `scratch` whatever makes Python import from one of the `trees`: entries of sys.path, and the finders of
    editable installs, which hold a folder for each package."""
    if scratch is None:
        return
    scratch = scratch.resolve()
    sys.path[:] = [_moved(entry, scratch, trees) for entry in sys.path]
    for finder in sys.meta_path:
        module = sys.modules.get(getattr(finder, "__module__", None) or "")
        packages = getattr(module, "MAPPING", None)
        if isinstance(packages, dict):
            packages.update({name: _moved(str(place), scratch, trees) for name, place in packages.items()})


def _moved(entry: str, scratch: Path, trees: Sequence[Path]) -> str:
    path = Path(entry)
    full = Path(os.path.realpath(path))
    if not path.is_absolute() or full.is_relative_to(scratch) or "site-packages" in full.parts:
        return entry  # "" is where the process is: in the copy
    root = next((tree for tree in trees if full.is_relative_to(tree)), None)
    own = scratch / full.relative_to(root) if root is not None else None
    return str(own) if own is not None and own.exists() else entry
