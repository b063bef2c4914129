"""What a parity run compares: the FSDP1 program and the FSDP2 program, as two whole trees.

With `--expect`, an FSDP2 program and its upgrade. Without --baseline, the first of these that there is: the `.orig`
files that `rewrite` kept; the versions of git's HEAD, where they are FSDP1; the program itself, when it still is
FSDP1, against a copy of it that is rewritten here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .config import Config
from .project.git import GitError, at_revision
from .project.imports import program_files, project_root, real
from .project.source import FileProblem
from .session import FSDP1_WORD, changed_bytes, examine, gather
from .verify.scratch import copy_tree

GIT = "git:"
UPGRADE_ADVICE = "name the FSDP2 program that was upgraded: --baseline PATH, or --baseline git:REV"
ADVICE = "name the FSDP1 program: --baseline PATH, or --baseline git:REV"


class BaselineError(Exception):
    """There is nothing to compare with; `hint` says what to do."""

    def __init__(self, message: str, hint: str = ADVICE) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Sides:
    """Two programs to run. The scripts and `cwd` are relative to the roots."""

    original_root: Path
    original: Path
    rewritten_root: Path
    rewritten: Path
    cwd: Path
    says: str
    """What was chosen, for the user."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The folder that has to be there for a script to run, and where inside it the run starts."""

    root: Path
    script: Path
    cwd: Path
    files: tuple[Path, ...]

    def sides(self, other: Path, says: str, *, other_is_original: bool) -> Sides:
        """This tree on one side, and on the other a copy of it that lies in `other`."""
        original, rewritten = (other, self.root) if other_is_original else (self.root, other)
        return Sides(original, self.script, rewritten, self.script, self.cwd, says)


def choose(script: Path, options: Config, scratch: Path) -> Sides:
    """The two programs for `check SCRIPT`. Copies are made in `scratch`. Raises `BaselineError`."""
    if not script.is_file():
        raise BaselineError(f"{script} does not exist", "give the path of the training script")
    tree = tree_of(script, Path.cwd())
    if options.baseline.startswith(GIT):
        return _from_revision(tree, options.baseline[len(GIT) :], scratch)
    if options.baseline:
        return _from_path(tree, Path(options.baseline), scratch)
    before = _from_kept(tree, scratch) or _from_head(tree, scratch, is_upgrade=bool(options.expect))
    if options.expect and before is None:
        raise BaselineError("nothing says what the program was before its upgrade", UPGRADE_ADVICE)
    return before or _from_itself(tree, options, scratch)


def tree_of(script: Path, folder: Path) -> Tree:
    """The smallest folder with all of a program in it, and with the current folder, if that is in the project."""
    path, folder = real(script), real(folder)
    files = program_files([path])
    top = project_root(path)
    parents = [_above_packages(file.parent, top) for file in (path, *files) if file.is_relative_to(top)]
    root = Path(os.path.commonpath(parents))
    if folder.is_relative_to(top):
        root = Path(os.path.commonpath([root, folder]))
    cwd = folder.relative_to(root) if folder.is_relative_to(root) else Path()
    return Tree(root, path.relative_to(root), cwd, files)


def _above_packages(folder: Path, top: Path) -> Path:
    """The folder that a file of `folder` is imported from: a run must be able to import the package from its copy."""
    while folder != top and (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _from_kept(tree: Tree, scratch: Path) -> Sides | None:
    """From `NAME.orig` files, as long as one of them is not what its file still says."""
    kept = {path: path.with_name(path.name + ".orig") for path in tree.files}
    old = {path: orig.read_bytes() for path, orig in kept.items() if orig.is_file()}
    different = _different(old)
    if not different:
        return None
    head = {path: data for path, data in _at_head(tree).items() if path not in old}
    other = _overlaid(tree, scratch / "original", {**_different(head), **different})
    return tree.sides(other, f"the original is {_names(tree, different)}, as kept in .orig", other_is_original=True)


def _from_head(tree: Tree, scratch: Path, is_upgrade: bool) -> Sides | None:
    """From HEAD, when the program differs from it and was FSDP1 there; an upgrade's, whatever it was."""
    different = _different(_at_head(tree))
    if not different:
        return None
    if not is_upgrade and not any(FSDP1_WORD.search(data.decode("utf-8", "replace")) for data in different.values()):
        return None
    other = _overlaid(tree, scratch / "original", different)
    return tree.sides(other, f"the original is git HEAD's {_names(tree, different)}", other_is_original=True)


def _from_itself(tree: Tree, options: Config, scratch: Path) -> Sides:
    """The program as it stands is the original; what `rewrite` makes of it is the other side."""
    from .render.view import Command

    script = tree.root / tree.script
    program = gather([script], options)
    if not program.speaks_of_fsdp:
        raise BaselineError(f"{script.name} and what it imports have no FSDP in them")
    view = examine(program, options, Command.REWRITE, tree.root)
    if view.report.errors:
        error = view.report.errors[0]
        raise BaselineError(f"{error.path.name}: {error.message}", error.hint)
    if not view.report.changes:
        raise BaselineError(f"{script.name} is not FSDP1, and neither a .orig file nor git HEAD says what it was")
    try:
        changes = {path: after for path, (_, after) in changed_bytes(view, program).items()}
    except FileProblem as problem:
        raise BaselineError(str(problem), problem.hint) from None
    other = _overlaid(tree, scratch / "rewritten", changes)
    return tree.sides(other, f"{script.name} is FSDP1: compared with what rewrite makes of it", other_is_original=False)


def _from_revision(tree: Tree, revision: str, scratch: Path) -> Sides:
    try:
        files = at_revision(revision, tree.root)
    except GitError as error:
        raise BaselineError(f"git has no {revision} here: {error}", "name a commit, a branch or a tag") from None
    if tree.root / tree.script not in files:
        raise BaselineError(f"{tree.script} is not in {revision}", "name a revision that has it, or a --baseline PATH")
    other = _overlaid(tree, scratch / "original", files)
    return tree.sides(other, f"the original is {tree.script.name} at {revision}", other_is_original=True)


def _from_path(tree: Tree, path: Path, scratch: Path) -> Sides:
    """A script beside ours runs in our tree; one elsewhere, in its own. A folder holds the whole other tree."""
    if path.is_dir():
        places = [real(path) / tree.script, real(path) / tree.script.name]
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            raise BaselineError(f"{path} has no {tree.script.name}")
        original = found.relative_to(real(path))
        return Sides(real(path), original, tree.root, tree.script, Path(), f"the original is {path}")
    if not path.is_file():
        raise BaselineError(f"{path} does not exist")
    if path.suffix != ".py":  # train.py.orig: imported modules still find it under the name of ours
        other = _overlaid(tree, scratch / "original", {tree.root / tree.script: path.read_bytes()})
        return tree.sides(other, f"the original is {path}", other_is_original=True)
    original = real(path)
    if original.is_relative_to(tree.root):
        inside = original.relative_to(tree.root)
        return Sides(tree.root, inside, tree.root, tree.script, tree.cwd, f"the original is {path}")
    there = tree_of(original, original.parent)
    return Sides(there.root, there.script, tree.root, tree.script, Path(), f"the original is {path}")


def _at_head(tree: Tree) -> dict[Path, bytes]:
    """The program's files in HEAD; empty without git, without a commit, or without them in it."""
    try:
        files = at_revision("HEAD", tree.root)
    except GitError:
        return {}
    return {path: files[path] for path in tree.files if path in files}


def _different(old: Mapping[Path, bytes]) -> dict[Path, bytes]:
    return {path: data for path, data in old.items() if not path.is_file() or path.read_bytes() != data}


def _overlaid(tree: Tree, target: Path, files: Mapping[Path, bytes]) -> Path:
    """A copy of the tree with these files in place of its own."""
    copy_tree(tree.root, target)
    for path, data in files.items():
        if not path.is_relative_to(tree.root):
            continue
        place = target / path.relative_to(tree.root)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)  # it may be a link to the user's own file
        place.write_bytes(data)
    return target


def _names(tree: Tree, files: Mapping[Path, bytes]) -> str:
    names = [str(path.relative_to(tree.root)) if path.is_relative_to(tree.root) else path.name for path in files]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
