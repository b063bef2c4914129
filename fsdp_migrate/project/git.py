"""What git knows about files. It is asked once for a whole list, and never writes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

TIMEOUT_S = 60
PATHS_A_CALL = 500
"""Well below the length of a command line on any system."""


class GitError(Exception):
    """Git is not installed, refused, or did not answer."""


def top_level(path: Path) -> Path | None:
    """The root of the work tree that a file or folder lies in, found without asking git."""
    for folder in (path, *path.parents):
        if (folder / ".git").exists():
            return folder
    return None


def recoverable(paths: Iterable[Path]) -> frozenset[Path]:
    """Those of the files that git can give back as they are now: tracked, and the same as in HEAD.

    One call for each work tree. Where git is missing or does not answer, no file counts as recoverable.
    """
    trees: dict[Path, list[Path]] = {}
    for path in paths:
        top = top_level(path.parent)
        if top:
            trees.setdefault(top, []).append(path)
    found: set[Path] = set()
    for top, members in trees.items():
        try:
            found.update(_unchanged(top, members))
        except GitError:
            continue
    return frozenset(found)


def listed(folder: Path) -> list[Path] | None:
    """The Python files below a folder that git does not ignore; None when git cannot say.

    A repository inside, known or not, is listed as a folder: the caller decides whether to go in.
    """
    top = top_level(folder)
    if top is None:
        return None
    try:
        names = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
        if not names and _ignored(top, folder):
            return None
    except GitError:
        return None
    return [folder / name for name in names.split("\0") if name]


def at_revision(revision: str, folder: Path) -> dict[Path, bytes]:
    """The Python files below a folder as they were at a revision, by their paths of today.

    Raises `GitError` when there is no repository or no such revision.
    """
    if top_level(folder) is None:
        raise GitError(f"{folder} is not in a git work tree")
    commit = _git(folder, "rev-parse", "--verify", "--end-of-options", revision + "^{commit}").strip()
    entries = [entry.split("\t", 1) for entry in _git(folder, "ls-tree", "-r", "-z", commit).split("\0") if entry]
    blobs = {name: about.split()[2] for about, name in entries if about.split()[1] == "blob" and name.endswith(".py")}
    answer = _git_bytes(folder, "cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in blobs.values()))
    found: dict[Path, bytes] = {}
    position = 0
    for name in blobs:  # each answer is `<oid> blob <size>\n<content>\n`
        end = answer.index(b"\n", position)
        size = int(answer[position:end].split()[2])
        found[folder / name] = answer[end + 1 : end + 1 + size]
        position = end + size + 2
    return found


def commit_of(folder: Path) -> str:
    """The commit that a folder's files are of, shortened, with "+" where some of them are not; empty without git."""
    try:
        commit = _git(folder, "rev-parse", "--short", "HEAD").strip()
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".").strip()
    except GitError:
        return ""
    return f"git {commit}{'+' if changed else ''}"


def _unchanged(top: Path, paths: Sequence[Path]) -> set[Path]:
    """What `git status` has nothing to say about. A folder it names stands for everything in it."""
    unchanged: set[Path] = set()
    for start in range(0, len(paths), PATHS_A_CALL):
        part = {path.relative_to(top).as_posix(): path for path in paths[start : start + PATHS_A_CALL]}
        options = ("--untracked-files=all", "--ignored=traditional", "--no-renames")
        answer = _git(top, "--literal-pathspecs", "status", "--porcelain", "-z", *options, "--", *part)
        said = {entry[3:] for entry in answer.split("\0") if entry}
        folders = tuple(name for name in said if name.endswith("/"))
        unchanged.update(path for name, path in part.items() if name not in said and not name.startswith(folders))
    return unchanged


def _ignored(top: Path, folder: Path) -> bool:
    if folder == top:
        return False
    try:
        _git(top, "check-ignore", "--quiet", folder.relative_to(top).as_posix())
    except GitError:
        return False
    return True


def _git(folder: Path, *arguments: str) -> str:
    return _git_bytes(folder, *arguments).decode("utf-8", "surrogateescape")


def _git_bytes(folder: Path, *arguments: str, stdin: str = "") -> bytes:
    # A hook sets GIT_DIR and GIT_INDEX_FILE for its own repository, which need not be the files'.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    # core.fsmonitor may name a program of the repository's choice: nothing of the user's is run here.
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command,
            input=stdin.encode("utf-8", "surrogateescape"),
            capture_output=True,
            env=environment,
            timeout=TIMEOUT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise GitError(error.stderr.decode("utf-8", "replace").strip() or f"{error}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(str(error)) from None
    return done.stdout
