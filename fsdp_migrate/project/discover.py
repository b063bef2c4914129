"""From the PATH arguments to the files worth parsing.

Finding Python files: inside a git work tree git lists them (it knows every ignore file, and answers for 5,000 files
in milliseconds); elsewhere the folders are walked. Then bytes decide: a file that holds none of the needles has
nothing of FSDP in it, and is never decoded or parsed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .git import listed
from .imports import real

NEVER_OURS = frozenset(
    {".git", ".hg", ".ipynb_checkpoints", ".svn", "__pycache__", "node_modules", "site-packages", "dist-packages"}
)
"""Folders that hold other people's code wherever they are, or an editor's copies of old code."""
USUALLY_IGNORED = NEVER_OURS | {".venv", "venv", ".tox", ".nox", ".eggs", "__pypackages__", "build", "dist"}
"""What a gitignore would say, for trees that have none."""

GATE = (b"fsdp", b"FullyShardedDataParallel", b"fully_shard")
"""Cheap: almost every file of a tree holds none of these."""
NEEDLES = re.compile(
    rb"FullyShardedDataParallel|distributed\.fsdp|import fsdp\b|fully_shard|FSDPModule|fsdp2_support"
    rb"|summon_full_params|ShardedGradScaler|ShardingStrategy"
)
"""What brings a file to the parser."""
DDP = re.compile(rb"\bDataParallel\b|\bDistributedDataParallel\b")
_TRAINS = re.compile(rb"\.backward\(|\bload_state_dict\(")
_TEST = re.compile(r"tests?|conftest|test_.*|.*_test")
_WRAPPER = ("torch", "distributed", "fsdp", "fully_sharded_data_parallel.py")


@dataclass(frozen=True, slots=True)
class Discovered:
    """What the PATH arguments lead to, as real paths in a fixed order."""

    files: tuple[Path, ...]
    """Every Python file looked at."""
    hits: tuple[Path, ...]
    """Those named one by one, and those whose bytes speak of FSDP."""
    digest: str = ""
    """Of the bytes of every file, in that order."""
    foreign: frozenset[Path] = frozenset()
    """Torch's own sources: a library, wherever they lie. Of them, only the wrapper's file is a hit."""


def discover(paths: Sequence[Path], exclude: Sequence[str] = ()) -> Discovered:
    """Named files always; folders with everything in them but ignored and excluded files.

    A path that leads nowhere counts as a named file, so that reading it says what is wrong.
    """
    excluded = _Excluded(exclude)
    files: dict[Path, None] = {}
    hits: dict[Path, None] = {}
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        if not path.is_dir():
            files[real(path)] = hits[real(path)] = None
            _add(digest, _bytes_of(path))
            continue
        folder = real(path)
        for found in python_files(folder):
            if found in files or excluded(found, folder):
                continue
            files[found] = None
            data = _bytes_of(found)
            _add(digest, data)
            if data is None or holds_fsdp(data):
                hits[found] = None
    foreign = _torch_of(files, hits) - {real(path) for path in paths}
    return Discovered(tuple(files), tuple(hit for hit in hits if hit not in foreign), digest.hexdigest(), foreign)


def _torch_of(files: Iterable[Path], hits: Iterable[Path]) -> frozenset[Path]:
    """The files of a copy of torch as a whole, but for the one that says what it is."""
    wrappers = [path for path in hits if path.parts[-len(_WRAPPER) :] == _WRAPPER]
    roots = [path.parents[2] for path in wrappers if (path.parents[2] / "__init__.py").is_file()]
    prefixes = tuple(f"{root}{os.sep}" for root in roots)
    return frozenset(path for path in files if str(path).startswith(prefixes)) - set(wrappers) if roots else frozenset()


def python_files(folder: Path) -> Iterator[Path]:
    """The `.py` files below a folder, by name, without what git ignores and folders that are never a user's code."""
    names = listed(folder)
    if names is None:
        yield from _walked(folder)
        return
    skip = len(folder.parts)
    for path in sorted(names):
        if NEVER_OURS.intersection(path.parts[skip:-1]):
            continue
        if path.suffix == ".py":
            if path.is_file():  # git also lists what was deleted
                yield path
        elif path.is_dir() and path.name not in NEVER_OURS:
            yield from python_files(path)  # a repository of its own


def speaks_of_fsdp(path: Path) -> bool:
    """Whether the bytes of a file can hold anything of FSDP. One that cannot be read can: reading it will say why."""
    data = _bytes_of(path)
    return data is None or holds_fsdp(data)


def speaks_of_ddp(path: Path) -> bool:
    """Whether the bytes of a file name the other wrappers of torch."""
    data = _bytes_of(path)
    return data is not None and DDP.search(data) is not None


def trains(path: Path) -> bool:
    """Whether the bytes of a file train a model, or load one."""
    data = _bytes_of(path)
    return data is not None and _TRAINS.search(data) is not None


def is_of_tests(path: Path, folders: Iterable[Path]) -> bool:
    """Whether it is a test, or lies among tests below one of the folders that are looked through."""
    inside = next((path.relative_to(folder) for folder in folders if path.is_relative_to(folder)), path)
    return any(map(_TEST.fullmatch, (*inside.parts[:-1], inside.stem)))


def holds_fsdp(data: bytes) -> bool:
    """Whether bytes can hold anything of FSDP."""
    return any(word in data for word in GATE) and NEEDLES.search(data) is not None


def _bytes_of(path: Path) -> bytes | None:
    """None when it cannot be read; that of a pipe is left for who reads it."""
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (OSError, ValueError):
        return None


def _add(digest: hashlib.blake2b, data: bytes | None) -> None:
    digest.update(b"unreadable" if data is None else b"%d:" % len(data))
    digest.update(data or b"")


def _walked(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith(".py") and _is_file(entry):
            yield Path(entry.path)
        elif entry.is_dir(follow_symlinks=False) and entry.name not in USUALLY_IGNORED and not _is_venv(entry.path):
            yield from _walked(Path(entry.path))


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that leads to itself
        return False


def _is_venv(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "pyvenv.cfg"))


class _Excluded:
    """`--exclude` patterns, read as lines of a gitignore file relative to the folder that is searched."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._spec = None
        lines = list(patterns)
        if lines:
            import pathspec  # 25 ms that only a user of --exclude pays

            self._spec = pathspec.GitIgnoreSpec.from_lines(lines)

    def __call__(self, path: Path, folder: Path) -> bool:
        return self._spec is not None and self._spec.match_file(path.relative_to(folder).as_posix())
