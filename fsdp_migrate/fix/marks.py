"""A comment above what a person has to do, save where the code still says it: that is found without one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from codemods import SKIPPED
from codemods.api import Finding, Fix

from ..plan.context import PlannedFile
from ..todo import marks
from .collect import Collected, is_left

_OF_FILES = {check.code for check in SKIPPED}
"""What keeps a file as it is: it stands there in the code."""


def marked(file: PlannedFile, findings: Iterable[Finding], made: Collected) -> Iterator[Fix]:
    """The comments for what was found in one file."""
    if file.plan.is_kept(file.path):
        return
    rendered = made.rendered(file)
    named = {file.span(node)[0] for node, _ in file.references() if is_left(file, node, rendered)}
    lasting = [
        each
        for each in findings
        if each.rule not in _OF_FILES and (each.about is None or file.span(each.about)[0] not in named)
    ]
    yield Fix(edits=list(marks(file, lasting)))
