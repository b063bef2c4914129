"""Where a program's `fsdp2_support.py` lies, what is in it, and how each file imports it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import support
from .findings import Change

NAME = "fsdp2_support"


def is_support_file(path: Path) -> bool:
    return path.name == f"{NAME}.py"


def home(users: Iterable[Path], texts: Mapping[Path, str]) -> Path:
    """The path of the support module: the one the program has, else the nearest folder above all files that need it."""
    for path in texts:
        if is_support_file(path):
            return path
    return Path(os.path.commonpath([path.parent for path in users])) / f"{NAME}.py"


def module_name(path: Path, user: Path, text: str) -> str:
    """What `user`, whose text this is, writes between `from` and `import`.

    A file that imports its neighbours by `from .x` gets a relative import; one in a package that is imported by its
    full name gets that; a script finds what lies beside it.
    """
    relative = os.path.relpath(path.parent, user.parent)
    if "\nfrom ." in f"\n{text}" and not relative.startswith("../" * 4):
        ups = 0 if relative == "." else relative.split(os.sep).count("..")
        downs = [part for part in relative.split(os.sep) if part not in {".", ".."}]
        return "." * (ups + 1) + ".".join([*downs, NAME])
    folder = path.parent
    for ancestor in (folder, *folder.parents):
        # `from pkg.utils import …` in this file: `pkg` is found from where it runs, whether or not it has `__init__.py`.
        if re.search(rf"^\s*(?:from|import)\s+{re.escape(ancestor.name)}\.", text, re.MULTILINE) and ancestor.name:
            return ".".join([ancestor.name, *folder.relative_to(ancestor).parts, NAME])
    package = [NAME]
    while (folder / "__init__.py").is_file():
        package.insert(0, folder.name)
        folder = folder.parent
    is_beside = path.parent == user.parent
    if is_beside and not any(f"{package[0]}." in line for line in text.splitlines() if "import" in line):
        return NAME
    return ".".join(package)


def change(path: Path, names: Iterable[str], texts: Mapping[Path, str]) -> Change | None:
    """The support module with these names in it; None when it holds them already. What the user edited is kept."""
    before = texts.get(path)
    after = support.update(before, names) if before is not None else support.compose(names)
    return Change(path, before, after) if after != before else None
