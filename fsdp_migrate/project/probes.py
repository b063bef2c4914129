"""Questions to the file system whose answers decide what a program is, asked once a run and written down.

While `recording`, the answers are kept, so that a result that was found with them can be told from a stale one.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Answers = dict[str, dict[str, str | bool]]
"""By question, then by path."""


def _raises(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return any(isinstance(statement, ast.Raise) for statement in ast.parse(file.read()).body)
    except (OSError, SyntaxError, ValueError):
        return False


_ASK: dict[str, Callable[[str], str | bool]] = {
    "is_file": os.path.isfile,
    "is_dir": os.path.isdir,
    "exists": os.path.exists,
    "real": os.path.realpath,
    "raises": _raises,
}
_answers: Answers | None = None


@contextmanager
def recording() -> Iterator[Answers]:
    """Keep the answers, and give the same one again."""
    global _answers
    outer, _answers = _answers, {question: {} for question in _ASK}
    try:
        yield _answers
    finally:
        _answers = outer


def is_file(path: Path) -> bool:
    """Whether there is such a file."""
    return bool(_asked("is_file", str(path)))


def is_dir(path: Path) -> bool:
    """Whether there is such a folder."""
    return bool(_asked("is_dir", str(path)))


def exists(path: Path) -> bool:
    """Whether there is anything."""
    return bool(_asked("exists", str(path)))


def raises(path: Path) -> bool:
    """Whether a module does nothing but raise when it is imported, whatever else stands in it."""
    return bool(_asked("raises", str(path)))


def real(path: Path) -> Path:
    """The one name a file has here: absolute, without symlinks, as Python takes a script's."""
    return Path(str(_asked("real", str(path))))


def still_true(answers: Answers) -> bool:
    """Whether the file system would answer the same today."""
    return all(_ASK[question](path) == was for question, found in answers.items() for path, was in found.items())


def _asked(question: str, path: str) -> str | bool:
    if _answers is None:
        return _ASK[question](path)
    known = _answers[question]
    if path not in known:
        known[path] = _ASK[question](path)
    return known[path]
