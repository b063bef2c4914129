"""What a rewrite did to a program, found without the tool's own analysis: `ast` over the files before and after."""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

FSDP2 = {
    "CPUOffloadPolicy",
    "DataParallelMeshDims",
    "FSDPModule",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "UnshardHandle",
    "fully_shard",
    "register_fsdp_forward_method",
    "share_comm_ctx",
}
WRAPPER = "FullyShardedDataParallel"
SUPPORT = "fsdp2_support.py"


@dataclass(frozen=True)
class Use:
    """A use of an FSDP1 name, outside of import statements."""

    name: str
    bound: str
    """What the file calls it."""
    line: int
    wraps: bool


@dataclass(frozen=True)
class Pointed:
    """Where a finding points that asks for a person, or says that FSDP1 is kept."""

    rule: str
    line: int
    column: int


def uses(text: str) -> Iterator[Use]:
    """The FSDP1 names that a file imports from torch and uses."""
    tree = parsed(text)
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and is_fsdp1(node.module or "")
        for alias in node.names
        if alias.name not in FSDP2
    }
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in imported:
            name = imported[node.id]
            yield Use(name, node.id, node.lineno, name == WRAPPER and id(node) in called)


def wraps(text: str) -> int:
    """How many constructor calls a file has."""
    return sum(use.wraps for use in uses(text)) if speaks_of_fsdp1(text) else 0


def calls_of(name: str, text: str) -> int:
    """How often a file calls a function by its bare name."""
    nodes = ast.walk(parsed(text)) if name in text else ()
    return sum(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name for n in nodes)


def unreported(before: str, after: str, found: Collection[Pointed]) -> list[str]:
    """The FSDP1 names left in a file that no finding points at."""
    lines = {before.splitlines()[line - 1].strip() for line in whole_statements(before, {f.line for f in found})}
    # Where something else of the line was rewritten: the word that a finding points at.
    words = {_word_at(before, finding) for finding in found}
    left = (use for use in uses(after) if after.splitlines()[use.line - 1].strip() not in lines)
    return [use.name for use in left if use.bound not in words]


def whole_statements(text: str, lines: Collection[int]) -> set[int]:
    """The lines of the statements that these lines are of, without the blocks below them."""
    found = set(lines)
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else node.end_lineno
            span = set(range(node.lineno, (end or node.lineno) + 1))
            found |= span if span & set(lines) else set()
    return found


def changed_lines(before: str, after: str) -> int:
    """Lines that a diff shows with a plus or a minus."""
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in diff)


def support_lines(after: Mapping[str, str]) -> list[int]:
    """The lines of each support file that was written, one a program."""
    return [text.count("\n") for path, text in after.items() if PurePosixPath(path).name == SUPPORT]


def is_test(path: str) -> bool:
    inside = PurePosixPath(path)
    return bool({"test", "tests"} & set(inside.parts)) or inside.name.startswith("test_")


def is_fsdp1(module: str) -> bool:
    return module.startswith("torch.distributed.fsdp") and "_fully_shard" not in module


def speaks_of_fsdp1(text: str) -> bool:
    return "torch.distributed.fsdp" in text


def parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _word_at(text: str, finding: Pointed) -> str:
    found = re.match(r"\w*", text.splitlines()[finding.line - 1][finding.column - 1 :])
    return found[0] if found else ""
