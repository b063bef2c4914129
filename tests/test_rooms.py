"""The rooms of ARCHITECTURE.md: who may import whom."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RULE_ROOMS = ("rules.wrapping", "rules.training", "rules.checkpoints", "hazards", "skipped", "fsdp2_lint", "upgrades")
CODEMODS = sorted((ROOT / "codemods").rglob("*.py"))
MIGRATE = sorted((ROOT / "fsdp_migrate").rglob("*.py"))

# What a room may import of the others: a step of the pipeline knows those before it, and no step knows the next.
MAY_IMPORT = {
    "pyanalysis": set(),
    "project": {"findings"},
    "fsdp1": {"pyanalysis"},
    "plan": {"fsdp1", "pyanalysis", "project"},
    "fix": {"edit", "plan", "fsdp1", "pyanalysis", "todo"},
    "edit": {"pyanalysis", "project", "support", "findings"},
}
WITHOUT_CODEMODS = ("pyanalysis", "project")


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


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


def rule_of(module: str) -> str | None:
    """The rule that a module is, or is a part of: `codemods.rules.wrapping.wrap` for all in that folder."""
    for room in RULE_ROOMS:
        start = f"codemods.{room}."
        if module.startswith(start):
            return start + module.removeprefix(start).split(".")[0]
    return None


@pytest.mark.parametrize("path", CODEMODS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_codemod_imports_no_rule_and_nothing_of_the_tool(path: Path) -> None:
    names = imported(path)
    assert not {name for name in names if name.split(".")[0] in ("fsdp_migrate", "torch")}
    if path.parent == ROOT / "codemods" or module_of(path).removeprefix("codemods.") in RULE_ROOMS:
        return  # these sort the rules
    assert {rule_of(name) for name in names} <= {None, rule_of(module_of(path))}


@pytest.mark.parametrize(
    "path",
    [path for path in CODEMODS if module_of(path.parent / "__init__.py").removeprefix("codemods.") in RULE_ROOMS],
)
def test_every_file_of_a_room_of_rules_is_a_rule(path: Path) -> None:
    if path.stem == "__init__":
        return
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    assert names & {"RULE", "CHECK", "UPGRADE"}


@pytest.mark.parametrize(
    "path",
    [path for path in MIGRATE if path.relative_to(ROOT / "fsdp_migrate").parts[0] in MAY_IMPORT],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_a_step_knows_only_the_steps_before_it(path: Path) -> None:
    room = path.relative_to(ROOT / "fsdp_migrate").parts[0]
    names = imported(path)
    rooms = {name.split(".")[1] for name in names if name.startswith("fsdp_migrate.")}
    assert rooms <= {room, *MAY_IMPORT[room]}
    assert room not in WITHOUT_CODEMODS or not {name for name in names if name.startswith("codemods")}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "fsdp_migrate" / "pyanalysis").glob("*.py")), ids=lambda path: path.name
)
def test_the_analysis_of_python_speaks_of_nothing_else(path: Path) -> None:
    assert not re.search("fsdp|fully_shard", path.read_text(), re.IGNORECASE)


@pytest.mark.parametrize("path", [path for path in MIGRATE if path.parent.name == "fsdp1"], ids=lambda path: path.stem)
def test_the_analysis_of_fsdp1_knows_no_decision(path: Path) -> None:
    assert not {name for name in imported(path) if name.startswith("codemods.plan")}


def test_what_starts_ranks_has_the_machine_to_itself() -> None:
    """Ranks beside other tests end in timeouts: `make test` runs these files first, and the others on all cores."""
    makefile = (ROOT / "Makefile").read_text()
    alone = next(line for line in makefile.splitlines() if line.startswith("RANKS :=")).split()[2:]
    starting = [path for path in (ROOT / "tests").rglob("test_*.py") if "@pytest.mark.dist\n" in path.read_text()]
    assert starting
    assert [path for path in starting if not any(path.is_relative_to(ROOT / each) for each in alone)] == []
