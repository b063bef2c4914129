"""What becomes of a program's new texts: printed as a diff, written in place, or as a copy of the whole program."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_migrate.console import is_coloured, out, out_bytes
from fsdp_migrate.project.git import top_level
from fsdp_migrate.project.source import UnwritableError, encode
from fsdp_migrate.project.write import Write, Written, write_all
from fsdp_migrate.render.diff import unified
from fsdp_migrate.session import Program, changed_bytes

if TYPE_CHECKING:
    from fsdp_migrate.render.view import View


def print_diff(view: View, program: Program) -> None:
    """What `git apply` takes; in colours for a terminal."""
    diffs = [
        unified(_diff_name(view, path), before, after) for path, (before, after) in changed_bytes(view, program).items()
    ]
    if not is_coloured(sys.stdout):
        out_bytes(b"".join(diffs))
        return
    from fsdp_migrate.render.text import coloured

    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in b"".join(diffs).decode("utf-8", "replace").split("\n")[:-1]:
        style = "bold" if line.startswith(("+++", "---", "diff ")) else styles.get(line[:1], "")
        out((coloured(line, style) if style else line) + "\n")


def print_file(view: View, program: Program) -> None:
    """The new text of a program of one file, or the old one where nothing changes."""
    changed = changed_bytes(view, program)
    for path, source in program.sources.items():
        out_bytes(changed[path][1] if path in changed else encode(source, source.text))


def write_in_place(view: View, program: Program) -> list[str]:
    """Write all files or none. What was done, for the user. Raises `UnwritableError`."""
    writes = [Write(path, before, after) for path, (before, after) in changed_bytes(view, program).items()]
    return [_line(view, "Rewrote" if _was_there(writes, each) else "Wrote", each) for each in write_all(writes)]


def write_copy(view: View, program: Program, output: Path, folders: Sequence[Path]) -> list[str]:
    """The whole program, so that the copy can be run: changed files and the others, as they lie in `folders`."""
    contents = {path: encode(source, source.text) for path, source in program.sources.items()}
    contents.update({path: after for path, (_, after) in changed_bytes(view, program).items()})
    if not contents:
        return []
    root = Path(os.path.commonpath([*(path.parent for path in contents), *map(os.path.realpath, folders)]))
    target = Path(os.path.realpath(output))
    if target == root:
        raise UnwritableError(target, "is where the program is", "name another folder, or leave out --output")
    writes = [Write(target / path.relative_to(root), None, content) for path, content in contents.items()]
    return [_line(view, "Wrote", each) for each in write_all(writes)]


def _was_there(writes: Sequence[Write], written: Written) -> bool:
    """Whether a written file replaced one that was read."""
    return any(write.path == written.path and write.before is not None for write in writes)


def _line(view: View, verb: str, written: Written) -> str:
    kept = f" (the original is {view.shown(written.kept)})" if written.kept else ""
    return f"{verb} {view.shown(written.path)}{kept}"


def _diff_name(view: View, path: Path) -> str:
    """Relative to the current folder, where `git apply` will be called; or, outside it, to the file's repository."""
    name = view.uri(path)
    if not os.path.isabs(name):
        return name
    top = top_level(path.parent)
    return path.relative_to(top).as_posix() if top else path.as_posix().lstrip("/")


def with_error(view: View, error: UnwritableError) -> View:
    """The view of a run that could not write."""
    from fsdp_migrate.findings import FileError

    problem = FileError(error.path, error.message, error.hint)
    return replace(view, report=replace(view.report, errors=(*view.report.errors, problem)))
