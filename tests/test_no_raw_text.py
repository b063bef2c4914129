"""No verdict from raw text: names are resolved, calls are nodes, a word in a comment or a literal decides nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = ("codemods", "fsdp_migrate/pyanalysis", "fsdp_migrate/fsdp1", "fsdp_migrate/plan")
_SEARCHES = frozenset({"count", "find", "index", "rfind", "rindex"})

LAYOUT = {
    "codemods/reading/edits/block_layout.py": "where a block's lines begin and end",
    "codemods/reading/edits/call_layout.py": "where a call's arguments are broken into lines",
    "codemods/reading/edits/layout.py": "where a line begins and ends",
    "codemods/reading/edits/raises.py": "the indentation of a statement",
    "codemods/rules/wrapping/wrap/emit.py": "the indentation of a statement",
    "codemods/template.py": "the holes of a template, which are the tool's own",
}
PREFILTER = {
    "fsdp_migrate/fsdp1/files.py": "which files are parsed at all",
    "fsdp_migrate/pyanalysis/program.py": "which files are parsed at all",
    "fsdp_migrate/pyanalysis/starred.py": "which files are parsed at all",
    "fsdp_migrate/pyanalysis/syntax/brackets.py": "reads Python's own tokens",
    "fsdp_migrate/pyanalysis/syntax/expressions.py": "reads Python's own tokens",
    "fsdp_migrate/pyanalysis/syntax/statements.py": "reads Python's own tokens",
    "fsdp_migrate/pyanalysis/syntax/strings.py": "reads Python's own tokens",
    "codemods/hazards/class_names.py": "which files are looked at; what is found there is resolved",
    "codemods/rules/wrapping/class_by_name.py": "which files are looked at; what is found there is resolved",
}
ABOUT_TEXT = {
    "codemods/skipped/generated.py": "a file says in a comment that it is generated",
    "codemods/tables/layers.py": "names of parameters are strings in the program too",
}
STILL = frozenset(
    {
        "codemods/fsdp2_lint/optimizer_first.py",
        "codemods/hazards/parameter_ids.py",
        "codemods/reading/processes/current_device.py",
        "codemods/reading/state_dicts/dcp_format.py",
        "codemods/reading/gradients/inside.py",
        "codemods/reading/parameters/of_model.py",
        "codemods/reading/processes/one_rank.py",
        "codemods/reading/optimizers/prewrap/inside.py",
        "codemods/reading/optimizers/prewrap/moving.py",
        "codemods/reading/optimizers/prewrap/rebinding.py",
        "codemods/rules/checkpoints/model_state/__init__.py",
        "codemods/rules/checkpoints/state_dict/__init__.py",
        "codemods/rules/training/assigned_data.py",
        "codemods/rules/training/autocast_cache.py",
        "codemods/rules/training/parameters_after_forward/__init__.py",
        "codemods/rules/wrapping/apply_after.py",
        "codemods/rules/wrapping/fsdp_units.py",
        "codemods/rules/wrapping/wrap/tensors/device.py",
    }
)
"""Older rules that match the source of one expression, which they found by its node. This list only gets shorter."""


def test_only_layout_and_the_prefilter_search_text() -> None:
    searching = {path for room in ROOMS for path in _searching(ROOT / room)}
    assert searching == LAYOUT.keys() | PREFILTER.keys() | ABOUT_TEXT.keys() | STILL


def _searching(room: Path) -> Iterator[str]:
    for path in sorted(room.rglob("*.py")):
        if any(map(_searches, ast.walk(ast.parse(path.read_text(encoding="utf-8"))))):
            yield path.relative_to(ROOT).as_posix()


def _searches(node: ast.AST) -> bool:
    """`import re`, `word in file.text`, `file.text.count(word)`."""
    if isinstance(node, ast.Import):
        return any(alias.name == "re" for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module == "re"
    if isinstance(node, ast.Compare):
        is_in = any(isinstance(operator, (ast.In, ast.NotIn)) for operator in node.ops)
        return is_in and any(map(_is_text, node.comparators))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _SEARCHES and _is_text(node.func.value)
    return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "text"
