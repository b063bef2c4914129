"""What is told of a run: its findings in order, and what was not written."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from pathlib import Path

import libcst as cst

from codemods import leftover
from codemods.api import Finding, KeepReason, Level
from codemods.plan import Plan

from .edit.changes import Written
from .findings import FileError, Report
from .fix import Fixes
from .pyanalysis.program import Program
from .pyanalysis.symbols import dotted_name

_MEND = "mend the constructor call that is left as it is, then run again"
_WAITS = "FSDP1 stays as it is here, as long as no constructor call of the program can be rewritten"
"""What is said, once a file, of all that waits for one."""
_FAILED = "see the error: nothing of this program was written"


_LIGHTNING = "where Lightning wraps the model, use ModelParallelStrategy, with fully_shard in configure_model"
_WRAPS = {
    ("accelerate", "Accelerator"): (
        "where accelerate wraps the model, give it fsdp_version: 2, and take accelerator.get_state_dict(model)"
    ),
    ("lightning",): _LIGHTNING,
    ("pytorch_lightning",): _LIGHTNING,
}
"""The names by which a program has a library shard a model, with what to do there."""


def obstacle(program: Program, plan: Plan) -> str | None:
    """Why nothing at all is written: a program that is FSDP1 in one place and FSDP2 in another trains wrongly."""
    if not plan.wraps:
        elsewhere = (
            "name the script that wraps the model too, so that both are migrated together; nothing that was looked"
            " through does"
        )
        if program.mentions("fully_shard"):
            elsewhere = "the model is FSDP2 already: write by hand what is left of FSDP1 here"
        return next((cure for names, cure in _WRAPS.items() if _takes(program, *names)), elsewhere)
    if not plan.migrates:
        return _MEND
    return None


def _takes(program: Program, library: str, *names: str) -> bool:
    """Whether a file imports a library, and the program has these names."""
    if not all(map(program.mentions, names)):
        return False
    trees = program.mentioning(library)
    plain = (alias.evaluated_name for tree in trees for node in tree.nodes(cst.Import) for alias in node.names)
    modules = (node.module for tree in trees for node in tree.nodes(cst.ImportFrom) if not node.relative)
    taken = (*plain, *(dotted_name(module) for module in modules if module is not None))
    return any(name.split(".")[0] == library for name in taken)


def make_report(
    program: Program, plan: Plan, fixes: Fixes, written: Written, lint: Set[Finding], waiting: Set[Path]
) -> Report:
    """The report of a run, `lint` being what was found in FSDP2 code, and `waiting` the files that one call keeps."""
    why, beside = obstacle(program, plan), None if plan.wraps else plan.any_path_beside
    reasons = dict.fromkeys(waiting, _MEND) | dict.fromkeys(written.failed, _FAILED)
    findings = {
        _not_written(each, reason, beside) if (reason := why or reasons.get(each.path)) else each
        for each in fixes.findings
    }
    return Report(
        in_order({*findings, *lint}),
        written.changes,
        (*unparsed(program), *written.errors),
        len(program.texts),
        frozenset(_by_place(each) for each in fixes.through_support if each.path in written.supported),
    )


def in_order(findings: Set[Finding]) -> tuple[Finding, ...]:
    """As they stand in a report."""
    return tuple(sorted(map(_by_place, findings), key=lambda f: (f.path, f.line, f.column, f.rule, f.message)))


def unparsed(program: Program) -> tuple[FileError, ...]:
    """The files that cannot be parsed."""
    hint = "mend the syntax error, or leave the file out with --exclude"
    return tuple(FileError(path, message, hint) for path, message in sorted(program.errors.items()))


def _by_place(finding: Finding) -> Finding:
    """Without its node, which would keep the tree of its file."""
    return replace(finding, about=None)


def _not_written(finding: Finding, hint: str, beside: KeepReason | None) -> Finding:
    """`beside` is a path of FSDP1 that the program keeps: what else it has of FSDP1 serves that."""
    is_told = finding.level in (Level.MANUAL, Level.KEPT) or leftover.is_about_data(finding)
    if hint == _MEND and (leftover.is_without_a_cure(finding) or not is_told):
        return replace(finding, rule=leftover.CODE, level=Level.MANUAL, message=_WAITS, hint=hint)
    if leftover.is_without_a_cure(finding):
        return replace(finding, hint=hint)
    if is_told:
        return finding
    message = finding.message.replace(" becomes ", " would become ")
    if beside is not None:
        message = f"not rewritten: {message}; the program keeps FSDP1 beside FSDP2 ({beside.place})"
        return replace(finding, level=Level.KEPT, message=message, hint="")
    return replace(finding, level=Level.MANUAL, message=f"not rewritten: {message}", hint=hint)
