"""The torch that a project asks for, where it is older than what the rewritten program runs on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from codemods.api import Finding, Level

from .findings import Report
from .project.imports import project_root
from .project.source import text_or_nothing

CODE = "FM003"
NAME = "torch-too-old"
DOCS = """**What it does.** Says where a project asks for a torch that is older than the one which the rewritten program
needs: in its requirements files, `pyproject.toml`, `setup.py`, `setup.cfg` or conda environment.

**Why.** `fully_shard` is in `torch.distributed.fsdp` since torch 2.6: an older one ends at the program's imports.

## Example

```
torch==2.1.0
```

## Use instead

```
torch>=2.6
```

## Fix safety

Nothing is changed. What more than one file says is told at the first of them. A container image is not looked into.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

_BELOW = "requirements"
_FILES = ("requirements*.txt", "pyproject.toml", "setup.py", "setup.cfg", "environment*.y*ml")
_BOUND = r"([=<>!~^]{1,3})\s*(\d[\w.*+]*)"
_PIN = re.compile(rf"(?<![\w./-])(?:py)?torch(?:\[\w+\])?\s*(?:=\s*[\"'])?((?:\s*{_BOUND}\s*,?)+)")
_UPPER = frozenset({"<", "<="})


def too_old(report: Report, needed: tuple[int, int]) -> tuple[Finding, ...]:
    """One finding at the first pin near the files that are rewritten; the rest of them are named there."""
    wrapping = dict.fromkeys(change.path for change in report.changes)
    found = [pin for folder in _folders(wrapping) for pin in _pins(folder, needed)]
    if not found:
        return ()
    path, line, column, asked = found[0]
    version = ".".join(map(str, needed))
    others = ", ".join(dict.fromkeys(f"{each.name}:{at}" for each, at, _, _ in found[1:]))
    message = f"the rewritten program needs torch >= {version}, and the project asks for {asked}"
    message += f" (also in {others})" if others else ""
    return (Finding(CODE, Level.REVIEW, path, line, column, message, f"ask for torch>={version}"),)


def _folders(wrapping: Iterable[Path]) -> Iterable[Path]:
    """For each file the nearest folder that has such files, inside of its project."""
    found: dict[Path, None] = {}
    for path in wrapping:
        root = project_root(path)
        around = (folder for folder in path.parents if folder == root or root in folder.parents)
        nearest = next((folder for folder in around if any(map(_names_torch, _files(folder)))), None)
        if nearest is not None:
            found[nearest] = None
    return found


def _files(folder: Path) -> list[Path]:
    names = [*_names(folder), *(f"{_BELOW}/{name}" for name in _names(folder / _BELOW))]
    found = (folder / name for pattern in _FILES for name in names if fnmatch(name, pattern))
    return [path for path in found if path.is_file()]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _names_torch(path: Path) -> bool:
    return _PIN.search(text_or_nothing(path)) is not None


def _pins(folder: Path, needed: tuple[int, int]) -> Iterator[tuple[Path, int, int, str]]:
    for path in _files(folder):
        for number, line in enumerate(text_or_nothing(path).splitlines(), 1):
            for pin in _PIN.finditer(line.partition("#")[0]):
                if _allows_older(re.findall(_BOUND, pin[1]), needed):
                    asked = " ".join(pin[0].rstrip(" ,").split())
                    yield path, number, pin.start() + 1, asked


def _allows_older(bounds: Iterable[tuple[str, str]], needed: tuple[int, int]) -> bool:
    lower = [_version(text) for op, text in bounds if op not in {*_UPPER, "!="}]
    upper = [(_version(text), op == "<=") for op, text in bounds if op in _UPPER]
    return any(version < (needed if holds else _above(needed)) for version, holds in upper) or (
        bool(lower) and max(lower) < needed
    )


def _above(version: tuple[int, int]) -> tuple[int, int]:
    return version[0], version[1] + 1


def _version(text: str) -> tuple[int, int]:
    numbers = [int(each) for each in re.findall(r"\d+", text)[:2]]
    return numbers[0], numbers[1] if len(numbers) > 1 else 0
