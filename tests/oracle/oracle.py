"""The recording oracle: a program is run, and every line that used FSDP1 must be rewritten or reported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from tests.helpers import Result, rewrite_files

from .stub import FSDP, run

Line = tuple[str, int]


@dataclass
class Verdict:
    """The lines of a program at which the tool and the run differ."""

    files: Mapping[str, str]
    result: Result
    missed: list[Line] = field(default_factory=list)
    """Used FSDP1, and was neither rewritten nor reported."""
    touched: list[Line] = field(default_factory=list)
    """Only ever saw plain or DDP models, and was changed."""

    def __str__(self) -> str:
        lines = {name: text.split("\n") for name, text in self.files.items()}
        missed = [f"missed  {name}:{line}: {lines[name][line - 1].strip()}" for name, line in self.missed]
        touched = [f"touched {name}:{line}: {lines[name][line - 1].strip()}" for name, line in self.touched]
        return "\n".join([*missed, *touched])


def judge(files: Mapping[str, str]) -> Verdict:
    """Run a program under both values of its flag, rewrite it, and compare."""
    used: dict[Line, set[str]] = defaultdict(set)
    for flag in (True, False):
        for line, kinds in run(files, flag).kinds.items():
            used[line] |= kinds
    result = rewrite_files(files)
    changed = {(name, line) for name in files for line in changed_lines(files[name], result.after[name])}
    reported = {(finding.path.name, finding.line) for finding in result.findings}
    verdict = Verdict(files, result)
    for line, kinds in sorted(used.items()):
        if FSDP in kinds and line not in changed | reported:
            verdict.missed.append(line)
        elif FSDP not in kinds and line in changed:
            verdict.touched.append(line)
    return verdict


def changed_lines(before: str, after: str) -> set[int]:
    """The lines of the old text that are not in the new one."""
    matcher = SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False)
    blocks = (block for block in matcher.get_opcodes() if block[0] in {"replace", "delete"})
    return {line + 1 for _, start, end, _, _ in blocks for line in range(start, end)}
