"""What becomes of a program under its plan: what the rules write, what they leave, and what is said of it all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from codemods import FSDP2_LINT, HAZARDS, RULES, SKIPPED
from codemods.api import Check, Finding, Fix
from codemods.reading.edits.raises import placed
from codemods.tables.names import WRAPPER

from ..fsdp1.files import holding, is_other_test
from ..plan.context import PlannedFile, PlannedModel
from .aliases import unused_aliases
from .collapse import collapsed
from .collect import Collected, Fixes
from .equal_branches import without_equal_branches
from .leftovers import leftovers
from .marks import marked
from .nested_ifs import merged_ifs
from .null_contexts import without_null_contexts
from .shared_options import share_options
from .unused_locals import unused_locals
from .unused_parameters import unused_parameters

__all__ = ["Fixes", "fsdp2_lint", "make_fixes"]


def make_fixes(planned: PlannedModel) -> Fixes:
    """The fixes of a program. Each step sees what those before it have written and reported."""
    plan, wrapping = planned.plan, planned.model.wrapping
    naming = [planned.of(file) for file in wrapping.naming]
    files = [planned.of(file) for file in wrapping.own] if plan.wraps else naming
    files = [file for file in files if not plan.is_kept(file.path)]
    made = Collected()
    for file in files:
        made.take_all(file, _written_by_rules(file))
    for file in files:
        made.take_all(file, unused_aliases(file, made))
        made.take_all(file, unused_locals(file, made))  # what has no reader is not put above the branches
        made.take_all(file, collapsed(file, made))
        made.take_all(file, without_equal_branches(file, made))
        made.take_all(file, unused_locals(file, made))
    _without_unread_parameters(planned, files, made)
    for file in files:
        share_options(file, made)
        made.take_all(file, without_null_contexts(file, made))
        made.take_all(file, merged_ifs(file, made))
        made.take_all(file, leftovers(file, made))
    for file in naming:
        made.take_all(file, (Fix(findings=list(check.find(file))) for check in SKIPPED))
    for file in naming:
        if file.path in plan.skipped:
            made.take_all(file, leftovers(file, made))
    for file, check in _hazards(planned, files):
        made.take(file.path, Fix(findings=list(check.find(file))))
        for where, stop in check.stops(file) if plan.migrates else ():
            made.take(where.path, Fix(raises=[stop]))
    for path, raises in made.raises():
        # What stops an FSDP model is put in when all that has to stop it is known: once a function.
        made.take(path, placed(planned.at(path), raises))
    for path, findings in made.findings_by_file().items() if planned.model.options.marks else ():
        made.take_all(planned.at(path), marked(planned.at(path), findings, made))
    return made.fixes()


def _without_unread_parameters(planned: PlannedModel, files: Sequence[PlannedFile], made: Collected) -> None:
    """What was passed for one of them can be all that read a variable, or another parameter."""
    asked = [*files]
    while asked:
        touched: set[Path] = set()
        for file in asked:
            for fix in unused_parameters(file, planned.plan, made):
                made.take(file.path, fix)
                touched |= {file.path, *(where.path for where, _ in fix.elsewhere)}
        asked = [planned.at(path) for path in sorted(touched)]
        for file in asked:
            made.take_all(file, unused_locals(file, made))


def fsdp2_lint(planned: PlannedModel) -> Iterator[Finding]:
    """What is wrong with the program's FSDP2 code."""
    return (finding for file, check in _asked(planned, FSDP2_LINT) for finding in check.find(file))


def _written_by_rules(file: PlannedFile) -> Iterator[tuple[Fix, str]]:
    for rule in RULES:
        for node_type in rule.nodes:
            for node in file.nodes(node_type):
                fix = rule.fix(node, file)
                if fix is not None:
                    yield fix, rule.code


def _hazards(planned: PlannedModel, files: Iterable[PlannedFile]) -> Iterator[tuple[PlannedFile, Check]]:
    """The checks of what trains otherwise now: anywhere in a program that wraps, else only where FSDP1 is named."""
    looked_at = {file.path for file in files if any(file.references())}
    concerns: dict[Path, bool] = {}
    for file, check in _asked(planned, HAZARDS):
        if file.path not in concerns:
            is_near = file.path in planned.plan.near and not is_other_test(file)
            concerned = is_near if planned.plan.wraps else file.path in looked_at
            concerns[file.path] = concerned and not planned.plan.is_kept(file.path)
        if concerns[file.path]:
            yield file, check


def _asked(planned: PlannedModel, checks: Iterable[Check]) -> Iterator[tuple[PlannedFile, Check]]:
    for check in checks:
        if WRAPPER in check.words:  # by whatever name
            yield from ((planned.of(file), check) for file in planned.model.wrapping.naming)
            continue
        for tree in holding(planned.model.program, check.words):
            yield planned.file(tree), check
