"""Run the tool over checkouts of real programs and write what became of each.

    python tests/corpus/table.py FOLDER > tests/corpus/table.md

FOLDER holds one folder a repository. Nothing in it is written, run or imported. The columns on constructor calls do
not rest on the tool's own analysis: another scan counts the calls outside of tests, before and after, and looks for
FSDP1 in the rewritten text that no finding names.
"""

from __future__ import annotations

import ast
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from codemods.api import Finding, Level
from fsdp_migrate.config import Config
from fsdp_migrate.engine import Options, migrate
from fsdp_migrate.findings import Report
from fsdp_migrate.session import gather

COLUMNS = (
    "repository",
    "files read",
    "constructor calls",
    "rewritten",
    "kept beside FSDP2",
    "left for a reason",
    "all constructs",
    "rewritten",
    "review",
    "manual",
    "kept",
    "files changed",
    "not Python",
    "left and not reported",
    "processor seconds",
)

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
WHOLE_FILE = {"FM111", "FM112"}
"""Rules that speak of a whole file: a copy of torch's sources, a generated one."""
BESIDE = "FM110"


@dataclass
class Fix:
    """What became of a program's constructor calls outside of tests."""

    calls: int = 0
    left: list[Finding] = field(default_factory=list)
    unreported: list[str] = field(default_factory=list)

    @property
    def beside(self) -> int:
        return sum(finding.rule == BESIDE for finding in self.left)


@dataclass(frozen=True)
class Use:
    """A use of an FSDP1 name, outside of import statements."""

    name: str
    bound: str
    """What the file calls it."""
    line: int
    wraps: bool


def uses(text: str) -> Iterator[Use]:
    """The FSDP1 names that a file imports from torch and uses, found without the tool's own analysis."""
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


def word_at(text: str, finding: Finding) -> str:
    found = re.match(r"\w*", text.splitlines()[finding.line - 1][finding.column - 1 :])
    return found[0] if found else ""


def parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def is_fsdp1(module: str) -> bool:
    return module.startswith("torch.distributed.fsdp") and "_fully_shard" not in module


def is_test(path: Path, root: Path) -> bool:
    inside = path.relative_to(root)
    return bool({"test", "tests"} & set(inside.parts)) or inside.name.startswith("test_")


def speaks_of_fsdp1(text: str) -> bool:
    return "torch.distributed.fsdp" in text


def outcome(report: Report, before: Mapping[Path, str], root: Path) -> Fix:
    """Compare the program before and after with what the report says."""
    found = Fix()
    after = {**before, **{change.path: change.after for change in report.changes}}
    failed = {error.path for error in report.errors}
    for path, text in before.items():
        if path in failed or not speaks_of_fsdp1(text):
            continue
        mine = [f for f in report.findings if f.path == path and f.level in (Level.MANUAL, Level.KEPT)]
        named = {finding.line: finding for finding in mine}
        lines = {text.splitlines()[line - 1].strip() for line in whole_statements(text, named)}
        # Where something else of the line was rewritten: the word that a finding points at.
        pointed_at = {word_at(text, finding) for finding in mine}
        whole = any(finding.rule in WHOLE_FILE for finding in mine)
        left = list(uses(after[path]))
        for use in left:
            line = after[path].splitlines()[use.line - 1].strip()
            if not whole and line not in lines and use.bound not in pointed_at:
                found.unreported.append(f"{path.name}: {use.name}")
        if not is_test(path, root) and not whole:
            calls = [use for use in uses(text) if use.wraps]
            kept = sum(use.wraps for use in left)
            found.calls += len(calls)
            found.left += [named[use.line] for use in calls if use.line in named][:kept]
    return found


def row(folder: Path) -> tuple[str, Fix]:
    """One line of the table. Raises SyntaxError should a rewritten file not be Python."""
    program = gather([folder], Config())
    start = time.process_time()
    report = migrate(tuple(program.sources.values()), Options(), program.imports)
    seconds = time.process_time() - start
    for change in report.changes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(change.after, str(change.path), "exec", dont_inherit=True)
    found = outcome(report, program.texts, folder.resolve())
    levels = Counter(finding.level for finding in report.findings)
    cells = [
        folder.name.replace("__", "/"),
        len(program.sources),
        found.calls,
        found.calls - len(found.left),
        found.beside,
        len(found.left) - found.beside,
        report.found,
        *(levels[level] for level in Level),
        len(report.changes),
        len(report.errors),
        "; ".join(dict.fromkeys(found.unreported)) or "none",
        f"{seconds:.1f}",
    ]
    return f"| {' | '.join(map(str, cells))} |", found


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    outcomes = {}
    print(f"| {' | '.join(COLUMNS)} |")
    print("|" + "---|" * len(COLUMNS))
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        if folder.is_dir():
            line, outcomes[folder.name.replace("__", "/")] = row(folder)
            print(line, flush=True)
    calls = sum(each.calls for each in outcomes.values())
    left = [finding for each in outcomes.values() for finding in each.left]
    beside = sum(each.beside for each in outcomes.values())
    print(
        f"\nOf {calls} constructor calls outside of tests, {calls - len(left)} are rewritten, {beside} belong to "
        f"programs that keep FSDP1 beside FSDP2, and {len(left) - beside} are left for a reason.\n"
    )
    for name, each in outcomes.items():
        for finding in each.left:
            if finding.rule != BESIDE:
                print(f"* {name}, `{finding.path.name}`: {finding.message}")


if __name__ == "__main__":
    main()
