"""Run the tool over checkouts of real programs and write what became of each.

    python tests/corpus/table.py FOLDER > tests/corpus/table.md

FOLDER holds one folder a repository. Nothing in it is written, run or imported. Besides the tool's own counts,
a separate scan looks for FSDP1 in the rewritten text: a file that still uses it must have a manual finding.
"""

from __future__ import annotations

import ast
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

from codemods.vocabulary import Level
from fsdp_migrate.config import Config
from fsdp_migrate.engine import Options, migrate
from fsdp_migrate.findings import Report
from fsdp_migrate.session import gather

COLUMNS = (
    "repository",
    "files read",
    "constructor calls",
    "of them rewritten",
    "found",
    "rewritten",
    "review",
    "manual",
    "files changed",
    "not Python",
    "left and not reported",
    "seconds",
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


def fsdp1_uses(text: str) -> set[str]:
    """The FSDP1 names that a file imports from torch and uses, found without the tool's own analysis."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and is_fsdp1(node.module or "")
        for alias in node.names
        if alias.name not in FSDP2
    }
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return {name for bound, name in imported.items() if bound in used}


def is_fsdp1(module: str) -> bool:
    return module.startswith("torch.distributed.fsdp") and "_fully_shard" not in module


def unreported(report: Report, texts: dict[Path, str]) -> list[str]:
    """Files that use FSDP1 after the rewrite without a finding that says so."""
    after = {**texts, **{change.path: change.after for change in report.changes}}
    named = {finding.path for finding in report.findings if finding.level is Level.MANUAL}
    failed = {error.path for error in report.errors}
    return [
        f"{path.name}: {', '.join(sorted(names))}"
        for path, text in sorted(after.items())
        if path not in named | failed and "torch.distributed.fsdp" in text and (names := fsdp1_uses(text))
    ]


def row(folder: Path) -> str:
    """One line of the table. Raises SyntaxError should a rewritten file not be Python."""
    program = gather([folder], Config())
    start = time.perf_counter()
    report = migrate(tuple(program.sources.values()), Options())
    seconds = time.perf_counter() - start
    for change in report.changes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(change.after, str(change.path), "exec", dont_inherit=True)
    calls = Counter(finding.level for finding in report.findings if finding.rule == "FM101")
    cells = [
        folder.name.replace("__", "/"),
        len(program.sources),
        sum(calls.values()),
        sum(calls.values()) - calls[Level.MANUAL],
        report.found,
        *(report.count(level) for level in Level),
        len(report.changes),
        len(report.errors),
        "; ".join(unreported(report, program.texts)) or "none",
        f"{seconds:.1f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(f"| {' | '.join(COLUMNS)} |")
    print("|" + "---|" * len(COLUMNS))
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        if folder.is_dir():
            print(row(folder), flush=True)


if __name__ == "__main__":
    main()
