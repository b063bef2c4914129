"""Sites as repositories have them: the tool writes no more than a person would, and leaves nothing to one.

Lines are those that the diff against `fsdp1.py` adds, the support file's included, blank ones left out.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from codemods.api import Level
from tests.helpers import rewrite

from .shapes import SHAPE_OF

HERE = Path(__file__).parent
LIMIT = 1.3
"""How many times a person's lines."""

MISSES = {
    "class_attribute_defaults": (
        1.56,
        "inputs are cast at the root only",
    ),
    "config_dataclass": (1.63, "inputs are cast at the root only, and None is turned into a policy beside the call"),
    "ddp_or_fsdp_classes": (1.43, "inputs are cast at the root only, and None is turned into a policy beside the call"),
    "hybrid_by_flag": (1.43, "the loop asks for the class, and the mesh stays a variable"),
    "if_elif_raise": (1.44, "the policy stays a value of its own, and inputs are cast at the root only"),
    "kwargs_from_function": (
        2.8,
        "strategy and policy stay entries of the dict, and the arguments of each call are spelled out",
    ),
    "lambda_over_blocks": (
        4.0,
        "group and strategy are parameters: three functions take any of them, and refuse what FSDP1 refused",
    ),
    "meta_on_other_ranks": (
        1.94,
        "each unit is initialized and broadcast in turn, where a person loads rank 0's state dict",
    ),
    "offload_by_value": (1.89, "inputs are cast at the root only, and one name in the imports needs a line each"),
    "offload_if_else": (
        2.16,
        "node_mesh as a function, arguments spelled out for both calls, and the offload read at the call",
    ),
    "policy_argument": (
        1.5,
        "inputs are cast at the root only, and a policy that a caller gives is asked of each module",
    ),
    "shared_kwargs_two_models": (
        1.56,
        "inputs are cast at the root only, and the loop asks for the class, not for the list",
    ),
    "size_policy_sync_flag": (1.31, "units_by_size is typed and says what it does"),
    "strategy_class": (2.0, "the policy stays a function of its own, and inputs are cast at the root only"),
    "strategy_dict_method_units": (1.31, "inputs are cast at the root only"),
    "strategy_dict_offload_flag": (2.05, "dict and function stay, and a second dict tells what FSDP2 makes of them"),
    "tuple_of_policies": (1.33, "the strategy stays a value, and is asked for where the mesh is made"),
    "two_parts_two_groups": (
        1.8,
        "the strategy comes from the environment: a function takes any of them, and refuses what FSDP1 refused",
    ),
}
"""Where more lines are written, how many times a person's, and why."""


@pytest.mark.parametrize("name", SHAPE_OF)
def test_no_more_lines_than_a_person_writes(name: str) -> None:
    before, expert = (_program(name, which) for which in ("fsdp1", "expert"))
    result = rewrite(before)
    lines = sum(_added(result.before.get(path, ""), text) for path, text in result.after.items())
    ratio = lines / _added(before, expert)

    left = [finding for finding in result.findings if finding.level is Level.MANUAL]
    assert not left, "something is left to a person"
    allowed, _ = MISSES.get(name, (LIMIT, ""))
    assert ratio <= allowed + 0.005, f"{ratio:.2f} times a person's lines"
    assert name not in MISSES or ratio > LIMIT, "misses no longer"


def test_each_site_has_its_folder() -> None:
    assert {path.parent.name for path in HERE.glob("*/fsdp1.py")} == set(SHAPE_OF)


def _program(name: str, which: str) -> str:
    return (HERE / name / f"{which}.py").read_text()


def _added(before: str, after: str) -> int:
    """How many lines a diff adds, blank ones left out."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0)
    return sum(line.startswith("+") and not line.startswith("+++") and line[1:].strip() != "" for line in lines)
