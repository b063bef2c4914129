"""The fixes of one program, while they are collected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from codemods import leftover
from codemods.api import SUPPORT, Context, Finding, Fix, Raise

from ..edit.apply import Overlap, Rendered, apply
from ..edit.pending import Pending


@dataclass(frozen=True)
class Fixes:
    """All that the rules want of a program, and say of it."""

    wanted: Mapping[Path, Pending]
    findings: frozenset[Finding]
    through_support: frozenset[Finding]
    """Those of what is done by the support module."""


@dataclass
class Collected:
    """What has been written and reported so far."""

    wanted: dict[Path, Pending] = field(default_factory=lambda: defaultdict(Pending))
    findings: set[Finding] = field(default_factory=set)
    reported: set[cst.CSTNode | None] = field(default_factory=set)
    """What the findings are about."""
    through_support: set[Finding] = field(default_factory=set)

    def take_all(self, file: Context, fixes: Iterable[Fix | tuple[Fix, str]]) -> None:
        """Take fixes one by one, so that what makes them sees those before."""
        for each in fixes:
            self.take(file.path, *(each if isinstance(each, tuple) else (each,)))

    def take(self, path: Path, fix: Fix, rule: str = leftover.CODE) -> None:
        self.findings.update(fix.findings)
        self.reported.update(each.about for each in fix.findings)
        if any(item.module == SUPPORT for item in fix.imports):
            self.through_support.update(fix.findings)
        self.wanted[path].edits.update(dict.fromkeys(fix.edits, rule))
        self.wanted[path].imports.update(fix.imports)
        self.wanted[path].raises.extend(fix.raises)
        for where, other in fix.elsewhere:
            self.take(where.path, other, rule)

    def fixes(self) -> Fixes:
        return Fixes(dict(self.wanted), frozenset(self.findings), frozenset(self.through_support))

    def raises(self) -> Sequence[tuple[Path, Sequence[Raise]]]:
        return [(path, wanted.raises) for path, wanted in self.wanted.items() if wanted.raises]

    def findings_by_file(self) -> Mapping[Path, Sequence[Finding]]:
        found: dict[Path, list[Finding]] = defaultdict(list)
        for each in self.findings:
            found[each.path].append(each)
        return found

    def rendered(self, file: Context) -> Rendered:
        """The text of a file with the edits so far."""
        try:
            return apply(file.path, file.text, self.wanted[file.path].edits)
        except Overlap:  # it is reported when the files are written; nothing of this one will be
            return Rendered(file.text, [(0, len(file.text))])

    def is_reported(self, file: Context, node: cst.CSTNode) -> bool:
        """Whether a finding is about the node, or about what it begins: `FSDP` of `FSDP.state_dict(model)`."""
        begun, start = [node], file.span(node)[0]
        for outer in file.ancestors(node):
            if file.bare_span(outer)[0] != start:
                break
            begun.append(outer)
            start = file.span(outer)[0]
        return not self.reported.isdisjoint(begun)


def is_left(file: Context, node: cst.CSTNode, rendered: Rendered) -> bool:
    """Whether a name is still in the text: all of `fsdp.FullyShardedDataParallel`."""
    if isinstance(node, cst.Attribute):
        return rendered.keeps(file.span(node.attr)) and is_left(file, node.value, rendered)
    return rendered.keeps(file.span(node))
