"""Write the files of a program: all of them or none, and nothing that was there is lost.

Every new text is first written in full beside its file. Only when all of them are safely on disk are they moved
into place, so that a full disk or a missing permission leaves the program as it was.

What git could not give back (untracked, ignored, changed since HEAD, no git) is kept as `NAME.orig`. An `.orig` that
is already there is never lost either: `NAME.orig` is the last text that had no FSDP2 in it, because that is what
`check` runs as the original; whatever else has to be kept gets the next free number, `NAME.orig.1`, `NAME.orig.2`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .git import recoverable
from .source import UnwritableError

MIGRATED = (b"fully_shard", b"FSDPModule", b"fsdp2_support")
"""A text that holds one of these has been rewritten, or was FSDP2 to begin with."""


@dataclass(frozen=True, slots=True)
class Write:
    """New content for one file. `before` is what was read; None for a file that should not be there yet."""

    path: Path
    before: bytes | None
    after: bytes


@dataclass(frozen=True, slots=True)
class Written:
    """One file as it was written, and where its old content is kept, if git could not give it back."""

    path: Path
    kept: Path | None = None


def write_all(writes: Sequence[Write]) -> tuple[Written, ...]:
    """Write all files or, when one of them cannot be written, none. Raises `UnwritableError`."""
    targets = [Write(Path(os.path.realpath(write.path)), write.before, write.after) for write in writes]
    old = {write.path: _checked(write) for write in targets}
    todo = [write for write in targets if old[write.path] != write.after]
    safe = recoverable(write.path for write in todo)
    with contextlib.ExitStack() as cleanup:
        staged = {write.path: _stage(write.path, write.after, cleanup) for write in todo}
        kept: dict[Path, Path] = {}
        for path in staged:
            content = old[path]
            if content is not None and path not in safe:
                kept[path] = keep(path, content)
        _replace_all(staged, old)
    return tuple(Written(path, kept.get(path)) for path in staged)


def keep(path: Path, content: bytes) -> Path:
    """Keep `content` beside `path`, by the rule at the top of this module; the file it is in."""
    first = path.with_name(path.name + ".orig")
    names = [first]
    while names[-1].exists():
        with _explained(names[-1]):
            if names[-1].read_bytes() == content:
                return names[-1]
        names.append(path.with_name(f"{path.name}.orig.{len(names)}"))
    free = names[-1]
    with contextlib.ExitStack() as cleanup:
        temporary = _stage(path, content, cleanup)
        with _explained(free):
            if first.exists() and not any(word in content for word in MIGRATED):
                os.replace(first, free)
                free = first
            os.replace(temporary, free)
    return free


def _replace_all(staged: Mapping[Path, str], old: Mapping[Path, bytes | None]) -> None:
    done: list[Path] = []
    try:
        for path, temporary in staged.items():
            with _explained(path):
                os.replace(temporary, path)
            done.append(path)
    except BaseException:  # Ctrl-C too: half a program is worse than none
        for path in done:
            _put_back(path, old[path])
        raise


def _put_back(path: Path, content: bytes | None) -> None:
    with contextlib.ExitStack() as cleanup, contextlib.suppress(OSError, UnwritableError):
        if content is None:
            path.unlink()
        else:
            os.replace(_stage(path, content, cleanup), path)


def _checked(write: Write) -> bytes | None:
    """What is on disk now; an error when it is not what was read, or may not be written."""
    path = write.path
    with _explained(path):
        now = path.read_bytes() if path.exists() else None
    if now == write.after:
        return now
    if write.before is not None and now != write.before:
        raise UnwritableError(path, "changed on disk while fsdp-migrate ran; nothing was written", "run it again")
    if now is not None and not os.access(path, os.W_OK):
        raise UnwritableError(path, "is read-only; nothing was written", "make it writable, or use --output DIR")
    return now


def _stage(path: Path, content: bytes, cleanup: contextlib.ExitStack) -> str:
    """Write `content` to a temporary file in the folder of `path`; `cleanup` removes what is left of it."""
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        cleanup.callback(_remove, temporary)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        _same_owner_and_mode(path, temporary)
    return temporary


def _same_owner_and_mode(path: Path, temporary: str) -> None:
    if not path.exists():
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        return
    shutil.copymode(path, temporary)
    status = path.stat()
    with contextlib.suppress(OSError, AttributeError):  # only root may give a file away
        os.chown(temporary, status.st_uid, status.st_gid)


def _remove(temporary: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(temporary)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn a failure of the file system into an `UnwritableError` about `path`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "make room and run it again" if "space" in reason.lower() else "check the permissions of its folder"
        raise UnwritableError(path, f"could not be written: {reason}", hint) from error
