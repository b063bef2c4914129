"""How long lines may be: what the project's tools are told, nearest file first."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.project.style import configured_width
from fsdp_migrate.pyanalysis.tree import Tree

SAID = {
    "pyproject.toml": {
        "[tool.ruff]\nline-length = 110\n[tool.black]\nline-length = 90\n": 110,
        "[tool.black]\n": 88,
        "[tool.yapf]\ncolumn_limit = 80\n[tool.isort]\nline_length = 100\n": 80,
        "[tool.isort]\nline_length = 79\n": 79,
        "[tool.ruff]\nline-length = 400\n": None,
        "[tool.other]\n": None,
        "[tool.ruff\n": None,
    },
    "ruff.toml": {"line-length = 79\n": 79},
    "setup.cfg": {"[flake8]\nmax-line-length = 119\n": 119, "[metadata]\nname = x\n": None},
    ".style.yapf": {"[style]\nbased_on_style = pep8\ncolumn_limit = 100\n": 100},
}


@pytest.mark.parametrize(
    ("name", "text", "width"), [(name, text, width) for name, texts in SAID.items() for text, width in texts.items()]
)
def test_what_a_project_says(name: str, text: str, width: int | None, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(text)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("")
    assert configured_width(tmp_path / "pkg" / "train.py") == width
    assert configured_width(tmp_path / "pkg" / "other.py") is None


@pytest.mark.parametrize(
    ("lines", "width"),
    [(["x" * 60] * 20, 100), (["x" * 60] * 200, 80), ([*["x" * 85] * 20, *["y"] * 180], 88), (["x" * 130] * 200, 120)],
)
def test_what_a_file_shows(lines: list[str], width: int) -> None:
    assert Tree(Path("train.py"), "\n".join(lines)).width == width
    assert Tree(Path("train.py"), "\n".join(lines), 79).width == 79
