"""How long a project lets its lines be: what its formatter is told, else its linter."""

from __future__ import annotations

import configparser
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

_BLACK = 88
"""What black, and ruff and isort in its manner, take without being told."""

_NARROWEST, _WIDEST = 60, 140
"""Other lengths are no choice of a width, but a rule that was switched off."""


def configured_width(path: Path) -> int | None:
    """The longest line that the project of a file asks for; None where it says nothing, or the file is in none."""
    return _width_of(path.absolute().parent) if path.is_file() else None


@lru_cache(maxsize=4096)
def _width_of(folder: Path) -> int | None:
    found = next((width for width in _said(folder) if _NARROWEST <= width <= _WIDEST), None)
    if found is not None or (folder / ".git").exists() or folder == folder.parent:
        return found
    return _width_of(folder.parent)


def _said(folder: Path) -> Iterator[int]:
    """What the files of one folder say: formatters first, and linters, which only bound them, last."""
    for name in (".ruff.toml", "ruff.toml"):
        yield from _numbers(_toml(folder / name), "line-length")
    tools = _toml(folder / "pyproject.toml").get("tool", {})
    for name, key in (("ruff", "line-length"), ("black", "line-length"), ("yapf", "column_limit")):
        yield from _numbers(tools.get(name, {}), key)
    if "black" in tools:
        yield _BLACK
    yield from _numbers(tools.get("isort", {}), "line_length")
    for name in (".style.yapf", "setup.cfg", ".flake8", "tox.ini"):
        sections = _sections(folder / name)
        for section, key in (("style", "column_limit"), ("yapf", "column_limit"), ("isort", "line_length")):
            yield from _numbers(sections.get(section, {}), key)
        yield from _numbers(sections.get("flake8", {}), "max-line-length")


def _numbers(table: Mapping[str, Any], key: str) -> Iterator[int]:
    for name in (key, key.replace("-", "_")):
        value = str(table.get(name, "")) if isinstance(table, Mapping) else ""
        if value.isdigit():
            yield int(value)


def _toml(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        found: Mapping[str, Any] = tomllib.loads(path.read_bytes().decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}  # a project that cannot be read says nothing of its style
    return found


def _sections(path: Path) -> Mapping[str, Mapping[str, str]]:
    if not path.is_file():
        return {}
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}
    return {name: dict(parser.items(name)) for name in parser.sections()}
