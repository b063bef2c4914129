"""Sites as repositories have them: the tool writes `fully_shard`, in no more lines than a person, leaving nothing open.

Lines are those that the diff against `fsdp1.py` adds, the support file's included, blank ones left out.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from codemods.api import Level
from tests.helpers import Result, rewrite_files

from .shapes import ONCE_THROUGH_SHARD_MODEL, SHAPE_OF

HERE = Path(__file__).parent
SITES = SHAPE_OF | ONCE_THROUGH_SHARD_MODEL
LIMIT = 1.3
"""How many times a person's lines."""


@pytest.mark.parametrize("name", SITES)
def test_no_more_lines_than_a_person_writes(name: str) -> None:
    before, expert = (_program(name, which) for which in ("fsdp1", "expert"))
    result = _rewritten(before)
    lines = sum(_added(result.before.get(path, ""), text) for path, text in result.after.items())
    ratio = lines / _added(before, expert)

    left = [finding for finding in result.findings if finding.level is Level.MANUAL]
    assert not left, "something is left to a person"
    assert set(result.after) == {"train.py"}, "a support file"
    assert not result.report.through_support, "not native"
    assert ratio <= LIMIT, f"{ratio:.2f} times a person's lines"


def test_each_site_has_its_folder() -> None:
    assert {path.parent.name for path in HERE.glob("*/fsdp1.py")} == set(SITES)


def _program(name: str, which: str) -> str:
    return (HERE / name / f"{which}.py").read_text()


def _rewritten(program: str) -> Result:
    """In a project whose lines may be as long as those of the person's form."""
    return rewrite_files({"train.py": program}, settings="[tool.ruff]\nline-length = 120\n")


def _added(before: str, after: str) -> int:
    """How many lines a diff adds, blank ones left out."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0)
    return sum(line.startswith("+") and not line.startswith("+++") and line[1:].strip() != "" for line in lines)
