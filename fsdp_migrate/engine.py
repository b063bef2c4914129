"""Program in, edits and findings out. Prints and writes nothing; of the disk it asks only where modules lie."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import libcst as cst

from codemods import FSDP2_LINT, HAZARDS, RULES, SKIPPED, leftover
from codemods.api import SUPPORT, Finding, Fix, Level, Options, Reference
from codemods.plan import Plan
from codemods.reading import configuration
from codemods.reading.layout import removal
from codemods.reading.raises import placed

from .edit import imports
from .edit.apply import Overlap, Rendered, apply
from .edit.changes import Pending, Written, write
from .findings import FileError, Report
from .fsdp1.files import holding
from .fsdp1.library import LIBRARY
from .fsdp1.program_model import PlannedFile, PlannedModel, ProgramModel
from .plan import make_plan
from .project.imports import import_graph, programs, resolve_module, roots_of
from .project.source import Source
from .pyanalysis.program import Program
from .pyanalysis.room import room_for_trees
from .pyanalysis.symbols import Resolve
from .todo import marks

__all__ = ["Options", "migrate"]


@room_for_trees()
def migrate(sources: Sequence[Source], options: Options, graph: Mapping[Path, Sequence[Path]] | None = None) -> Report:
    """Rewrite the program that these files make up.

    `graph` tells which of the files each one imports: what nothing connects gets a support module of its own.
    Never raises for a file that cannot be parsed: it is in `Report.errors`, and the rest goes on.
    """
    program = Program({source.path: source.text for source in sources}, _resolver(), LIBRARY)
    graph = import_graph(tuple(program.texts)) if graph is None else graph
    model = ProgramModel(program, options, programs(graph))
    plan = make_plan(model, graph)
    facts = PlannedModel(model, plan)
    naming = [facts.of(file) for file in model.wrapping.naming]
    looked_at = model.wrapping.own if plan.wraps else model.wrapping.naming
    files = [facts.of(file) for file in looked_at if not plan.is_kept(file.path)]
    run = _Run(facts)
    for file in files:
        run.apply_rules(file)
    for file in files:
        run.report_leftovers(file)
    run.report_untouched(naming)
    run.report_traps(files)
    findings = run.findings
    obstacle = _obstacle(plan)
    written = Written((), (), frozenset())
    if obstacle is None:
        run.place_raises()
        if options.marks:
            run.mark_what_is_left()
        pending = {path: each for path, each in run.pending.items() if not plan.is_kept(path)}
        written = write(program, pending, programs(graph) or (tuple(program.texts),), graph)
        findings = {_left(each, _FAILED) if each.path in written.failed else each for each in findings}
    else:
        findings = {_left(finding, obstacle) for finding in findings}
    errors = tuple(
        FileError(path, message, "mend the syntax error, or leave the file out with --exclude")
        for path, message in sorted(program.errors.items())
    )
    if options.contract:
        findings = findings | fsdp2_lint_findings(facts)
    ordered = tuple(sorted(map(_by_place, findings), key=lambda f: (f.path, f.line, f.column, f.rule, f.message)))
    through_support = frozenset(map(_by_place, run.through_support))
    return Report(ordered, written.changes, (*errors, *written.errors), len(sources), through_support)


def _by_place(finding: Finding) -> Finding:
    """Without its node, which would keep the tree of its file."""
    return replace(finding, about=None)


def fsdp2_lint_findings(facts: PlannedModel) -> set[Finding]:
    """What is wrong with the program's FSDP2 code."""
    return {
        finding
        for check in FSDP2_LINT
        for tree in holding(facts.model.program, check.words)
        for finding in check.find(facts.file(tree))
    }


_FAILED = "see the error: nothing of this program was written"


def _obstacle(plan: Plan) -> str | None:
    """Why nothing at all is written: a program that is FSDP1 in one place and FSDP2 in another trains wrongly."""
    if not plan.wraps:
        return "name the script that wraps the model too, so that both are migrated together"
    if not plan.migrates:
        return "mend the constructor call that is left as it is, then run again"
    return None


def _left(finding: Finding, hint: str) -> Finding:
    if finding.level in (Level.MANUAL, Level.KEPT) or leftover.is_about_data(finding):
        return finding
    message = finding.message.replace(" becomes ", " would become ")
    return replace(finding, level=Level.MANUAL, message=f"not rewritten: {message}", hint=hint)


class _Run:
    """The edits and findings of one program, while they are collected."""

    def __init__(self, facts: PlannedModel) -> None:
        self.facts = facts
        self.plan = facts.plan
        self.findings: set[Finding] = set()
        self.reported: set[cst.CSTNode | None] = set()
        """What the findings are about."""
        self.through_support: set[Finding] = set()
        self.pending: dict[Path, Pending] = defaultdict(Pending)

    def apply_rules(self, file: PlannedFile) -> None:
        for rule in RULES:
            for node_type in rule.nodes:
                for node in file.tree.nodes(node_type):
                    found = rule.match(node, file)
                    if found is not None:
                        self._take(file.path, rule.edit(found, file), rule.code)

    def report_leftovers(self, file: PlannedFile) -> None:
        """Report what no rule has rewritten or reported. What this adds puts lines before it, and takes nothing."""
        untouched = self.plan.is_kept(file.path)
        migrated = not untouched and self.plan.migrates
        if not untouched:
            self._drop_aliases(file)
        rendered = self._rendered(file)
        migrated_before = not self.plan.wraps and self.facts.model.program.mentions("fully_shard")
        data: list[tuple[cst.BaseExpression, str]] = []
        for node, name in file.references():
            if not _is_left(file, node, rendered) or self._is_reported(file, node):
                continue
            if leftover.is_plain_data(name) and (migrated or migrated_before) and not untouched:
                data.append((node, name))
                continue
            if imports.is_vocabulary(name) and self.plan.wraps and not untouched:
                self._take(file.path, configuration.move(node, name, file))
                continue
            self._take(file.path, leftover.report(node, name, file, migrated))
        for string, name in file.evaluated():
            if not rendered.keeps(file.span(string)):
                continue
            if leftover.is_plain_data(name) and migrated:
                data.append((string, name))
            elif not (imports.is_vocabulary(name) and migrated):
                # The rest of the vocabulary is imported from the support module then, under the same names.
                self._take(file.path, leftover.report(string, name, file, migrated))
        for string, name in file.quoted():
            self._take(file.path, leftover.quoted(string, name, file))
        self._take(file.path, leftover.plain_data(data, file))
        if self.plan.beside(file.path) is not None:
            return
        attributes = [node for node in file.tree.nodes(cst.Attribute) if rendered.keeps(file.span(node.attr))]
        self._take(file.path, leftover.internals(file, attributes, migrated))

    def _drop_aliases(self, file: PlannedFile) -> None:
        """Take `FSDP = FullyShardedDataParallel` away when nothing of its uses is left."""
        named = [node for node, _ in file.references() if isinstance(file.parent(node), cst.Assign)]
        while named and any(self._drop_alias(file, node, self._rendered(file)) for node in named):
            pass

    def _drop_alias(self, file: PlannedFile, node: Reference, rendered: Rendered) -> bool:
        assignment = file.parent(node)
        target = assignment.targets[0].target if isinstance(assignment, cst.Assign) else None
        if assignment is None or not isinstance(target, cst.Name) or file.fsdp1(target) is None:
            return False
        uses = file.uses(assignment)
        line = file.parent(assignment)
        if line is None or file.mentions_elsewhere(target.value) or not _is_left(file, node, rendered):
            return False
        if not uses or any(_is_left(file, use, rendered) for use in uses):
            return False
        self.pending[file.path].edits[removal(file, line)] = leftover.CODE
        return True

    def report_untouched(self, naming: Iterable[PlannedFile]) -> None:
        """What is not rewritten, and why; nothing about the inside of a file that is not the user's."""
        for file in naming:
            for check in SKIPPED:
                self._take(file.path, Fix(findings=tuple(check.find(file))))
        for file in naming:
            if file.path in self.plan.skipped:
                self.report_leftovers(file)

    def report_traps(self, files: Iterable[PlannedFile]) -> None:
        """What trains otherwise now: anywhere in a program that wraps, else only where FSDP1 is named."""
        named = {file.path for file in files}
        for trap in HAZARDS:
            for tree in holding(self.facts.model.program, trap.words):
                if not self.plan.is_kept(tree.path) and (self.plan.wraps or tree.path in named):
                    self.findings.update(trap.find(self.facts.file(tree)))

    def place_raises(self) -> None:
        """What stops an FSDP model is put in when all that has to stop it is known: once a function."""
        for path in [path for path, pending in self.pending.items() if pending.raises]:
            tree = self.facts.model.program.tree(path)
            assert tree is not None
            self._take(path, placed(self.facts.file(tree), self.pending[path].raises))

    def mark_what_is_left(self) -> None:
        """A comment above what a person has to do, save where FSDP1 is still named: that is found without one."""
        by_path: dict[Path, list[Finding]] = defaultdict(list)
        for each in self.findings:
            by_path[each.path].append(each)
        for path, findings in by_path.items():
            tree = self.facts.model.program.tree(path)
            if tree is None or self.plan.is_kept(path):
                continue
            file = self.facts.file(tree)
            rendered = self._rendered(file)
            named = {file.span(node)[0] for node, _ in file.references() if _is_left(file, node, rendered)}
            lasting = [each for each in findings if each.about is None or file.span(each.about)[0] not in named]
            self.pending[path].edits.update(dict.fromkeys(marks(file, lasting), leftover.CODE))

    def _take(self, path: Path, outcome: Fix, rule: str = leftover.CODE) -> None:
        self.findings.update(outcome.findings)
        self.reported.update(each.about for each in outcome.findings)
        if any(item.module == SUPPORT for item in outcome.imports):
            self.through_support.update(outcome.findings)
        self.pending[path].edits.update(dict.fromkeys(outcome.edits, rule))
        self.pending[path].imports.update(outcome.imports)
        self.pending[path].raises.extend(outcome.raises)
        for where, other in outcome.elsewhere:
            self._take(where.path, other, rule)

    def _rendered(self, file: PlannedFile) -> Rendered:
        try:
            return apply(file.path, file.text, self.pending[file.path].edits)
        except Overlap:  # `changes` reports it; nothing of this file will be written
            return Rendered(file.text, [(0, len(file.text))])

    def _is_reported(self, file: PlannedFile, node: cst.CSTNode) -> bool:
        """Whether a finding is about the node, or about what it begins: `FSDP` of `FSDP.state_dict(model)`."""
        begun, start = [node], file.span(node)[0]
        for outer in file.ancestors(node):
            if file.span(outer)[0] != start:
                break
            begun.append(outer)
        return not self.reported.isdisjoint(begun)


def _is_left(file: PlannedFile, node: cst.CSTNode, rendered: Rendered) -> bool:
    """Whether a name is still in the text: all of `fsdp.FullyShardedDataParallel`."""
    if isinstance(node, cst.Attribute):
        return rendered.keeps(file.span(node.attr)) and _is_left(file, node.value, rendered)
    return rendered.keeps(file.span(node))


def _resolver() -> Resolve:
    """Module names to files, looked up from the importing file's own folder up to the project's root."""
    folders: dict[Path, tuple[Path, ...]] = {}
    found: dict[tuple[Path, str | None, int], Path | None] = {}

    def resolve(importing: Path, module: str | None, level: int) -> Path | None:
        folder = importing.parent
        if folder not in folders:
            folders[folder] = roots_of(importing)
        key = (folder, module, level)
        if key not in found:
            found[key] = resolve_module(importing, module, level, folders[folder])
        return found[key]

    return resolve
