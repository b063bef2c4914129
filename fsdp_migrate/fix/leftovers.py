"""What no rule has rewritten or reported."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from codemods import leftover
from codemods.api import Fix
from codemods.reading.wraps import configuration
from codemods.skipped.side_by_side import serving

from ..edit.imports import is_vocabulary
from ..plan.context import PlannedFile
from .collect import Collected, is_left


def leftovers(file: PlannedFile, made: Collected) -> Iterator[Fix]:
    """Fixes for one file, which put lines before what is left, and take nothing away."""
    plan = file.plan
    untouched = plan.is_kept(file.path)
    migrated = not untouched and plan.migrates
    settings_stay = not untouched and (plan.migrates or not plan.wraps)
    rendered = made.rendered(file)
    data: list[tuple[cst.BaseExpression, str]] = []
    for node, name in file.references():
        if not is_left(file, node, rendered) or made.is_reported(file, node):
            continue
        if settings_stay and leftover.is_plain_data(name):
            data.append((node, name))
        elif is_vocabulary(name) and plan.wraps and not untouched:
            yield configuration.move(node, name, file)
        else:
            yield leftover.report(node, name, file, migrated)
    for string, name in file.evaluated():
        if not rendered.keeps(file.span(string)):
            continue
        if leftover.is_plain_data(name) and settings_stay:
            data.append((string, name))
        elif not (is_vocabulary(name) and migrated):
            # The rest of the vocabulary is imported from the support module then, under the same names.
            yield leftover.report(string, name, file, migrated)
    beside = plan.beside(file.path)
    for string, name in file.quoted():
        yield Fix(findings=[serving(string, file, beside)]) if beside else leftover.quoted(string, name, file, migrated)
    yield leftover.plain_data(data, file)
    if beside is None:
        attributes = [node for node in file.nodes(cst.Attribute) if rendered.keeps(file.span(node.attr))]
        yield leftover.internals(file, attributes, migrated)
