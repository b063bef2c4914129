"""Where a program's `fsdp2_support.py` lies, what is in it, and how each file imports it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from . import support
from .findings import Change
from .project.source import read_source

NAME = "fsdp2_support"


def is_support_file(path: Path) -> bool:
    return path.name == f"{NAME}.py"


def home(users: Collection[Path], texts: Mapping[Path, str]) -> Path:
    """The path of the support module: the one the program has, else a folder from which all its users can import.

    That is the folder above them all, if one of them lies in it (a script finds what lies beside it, and so do the
    packages it imports) or if it is a package; else the package that most of them belong to.
    """
    for path in texts:
        if is_support_file(path):
            return path
    common = Path(os.path.commonpath([path.parent for path in users]))
    if any(path.parent == common for path in users) or _is_package(common):
        return common / f"{NAME}.py"
    packages = Counter(root for path in users if (root := _root_package(path.parent)) is not None)
    folder = max(packages, key=lambda root: (packages[root], str(root))) if packages else common
    return folder / f"{NAME}.py"


def module_name(path: Path, user: Path, texts: Mapping[Path, str]) -> str:
    """What the file `user` writes between `from` and `import`.

    A file that imports its neighbours by `from .x` gets a relative import; one whose program imports the package
    by name gets the full name; a script finds what lies beside it.
    """
    root = _root_package(path.parent)
    if root is not None and user.is_relative_to(root) and _imports_relatively(root, texts):
        relative = os.path.relpath(path.parent, user.parent).split(os.sep)
        return "." * (relative.count("..") + 1) + ".".join([p for p in relative if p not in {".", ".."}] + [NAME])
    for ancestor in (path.parent, *path.parent.parents):
        if _is_imported_by_name(ancestor, texts):
            return ".".join([ancestor.name, *path.parent.relative_to(ancestor).parts, NAME])
    return NAME


def change(path: Path, names: Iterable[str], texts: Mapping[Path, str]) -> Change | None:
    """The support module with these names in it; None when it holds them already. What the user edited is kept.

    One that another program of the same folder uses is not among this program's texts: it is read from the disk.
    """
    before = texts.get(path)
    if before is None and path.is_file():
        before = read_source(path).text
    after = support.update(before, names) if before is not None else support.compose(names)
    return Change(path, before, after) if after != before else None


def _imports_relatively(package: Path, texts: Mapping[Path, str]) -> bool:
    return any("\nfrom ." in f"\n{text}" for path, text in texts.items() if path.is_relative_to(package))


def _is_imported_by_name(folder: Path, texts: Mapping[Path, str]) -> bool:
    """Whether the program imports this folder as a package, with or without an `__init__.py`."""
    if not folder.name.isidentifier():
        return False
    pattern = re.compile(rf"^\s*(?:from|import)\s+{re.escape(folder.name)}\b", re.MULTILINE)
    near = (text for path, text in texts.items() if path.is_relative_to(folder.parent))
    return any(folder.name in text and pattern.search(text) for text in near)


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _root_package(folder: Path) -> Path | None:
    """The outermost package that a folder lies in."""
    found = None
    while _is_package(folder):
        found, folder = folder, folder.parent
    return found
