"""`fsdp-migrate rewrite`: in place, into another folder, as a diff, or from standard input to standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_migrate.config import Config
from fsdp_migrate.console import is_coloured, out, out_bytes
from fsdp_migrate.project.git import top_level
from fsdp_migrate.project.source import UnwritableError, encode
from fsdp_migrate.project.write import Write, Written, write_all
from fsdp_migrate.render.diff import unified
from fsdp_migrate.session import Program, changed_bytes, examine

from .common import STDIN, answer_nothing, has_work, read

if TYPE_CHECKING:
    from fsdp_migrate.render.view import View


def run(paths: Sequence[Path], options: Config, diff: bool, output: Path | None, stdin_name: Path | None) -> int:
    """Rewrite, and report. The exit code."""
    program = read(paths, options, stdin_name)
    on_stdout = diff or STDIN in paths
    if not has_work(program, options) and not on_stdout and output is None:
        return answer_nothing(program)
    from fsdp_migrate.render.view import Command, exit_code

    from .show import show

    view = examine(program, options, Command.REWRITE, Path.cwd())
    done: list[str] = []
    try:
        if diff:
            _print_diff(view, program)
        elif on_stdout:
            _print_file(view, program)
        elif output is not None:
            done = _write_copy(view, program, output, [path for path in paths if path.is_dir()])
        else:
            done = _write_in_place(view, program)
    except UnwritableError as error:
        view = _with_error(view, error)
    show(view, options, done, to_stderr=on_stdout)
    return exit_code(view, options.strict)


def _print_diff(view: View, program: Program) -> None:
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


def _print_file(view: View, program: Program) -> None:
    changed = changed_bytes(view, program)
    for path, source in program.sources.items():
        out_bytes(changed[path][1] if path in changed else encode(source, source.text))


def _write_in_place(view: View, program: Program) -> list[str]:
    writes = [Write(path, before, after) for path, (before, after) in changed_bytes(view, program).items()]
    return [_line(view, "Rewrote" if path_was_there(writes, each) else "Wrote", each) for each in write_all(writes)]


def _write_copy(view: View, program: Program, output: Path, folders: Sequence[Path]) -> list[str]:
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


def path_was_there(writes: Sequence[Write], written: Written) -> bool:
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


def _with_error(view: View, error: UnwritableError) -> View:
    from fsdp_migrate.findings import FileError

    problem = FileError(error.path, error.message, error.hint)
    return replace(view, report=replace(view.report, errors=(*view.report.errors, problem)))
