"""The rooms of ARCHITECTURE.md: who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RULE_ROOMS = ("wrapping", "training", "checkpoints", "traps", "skipped", "contract")
CODEMODS = sorted((ROOT / "codemods").rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The modules that a file imports, whole: `from codemods.reading import dead` is codemods.reading.dead."""
    package = path.relative_to(ROOT).parent.parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            start = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            found |= {f"{start}.{name.name}" for name in node.names}
    return found


@pytest.mark.parametrize("path", CODEMODS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_codemod_imports_no_rule_and_nothing_of_the_tool(path: Path) -> None:
    names = imported(path)
    assert not {name for name in names if name.split(".")[0] in ("fsdp_migrate", "torch")}
    room, *rest = path.relative_to(ROOT / "codemods").with_suffix("").parts
    if rest in ([], ["__init__"]):  # these sort the rules
        return
    rules = {name for name in names if name.startswith(tuple(f"codemods.{other}." for other in RULE_ROOMS))}
    own = f"codemods.{room}.{rest[0]}." if len(rest) > 1 else f"codemods.{room}.{path.stem}"
    assert not {name for name in rules if not name.startswith(own)}


@pytest.mark.parametrize(
    "path", [path for path in CODEMODS if path.parent.name in RULE_ROOMS and path.stem != "__init__"]
)
def test_every_file_of_a_room_of_rules_is_a_rule(path: Path) -> None:
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    assert names & {"RULE", "CHECK"}
