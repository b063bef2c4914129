"""A program that is written otherwise and means the same is decided about in the same way, and becomes the same."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import pytest

from codemods import HAZARDS, RULES, SKIPPED, leftover

from ..helpers import Result, run_files
from ..oracle.programs import generate
from ..test_rule_docs import snippet
from .mutations import MUTATIONS, Files, Mutant, Mutation
from .styles import written_as
from .syntax import SYNTAX, Syntax

FIXTURES = Path(__file__).parents[2] / "fixtures"
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/fsdp1"))
EXAMPLES = {rule.code: snippet(rule.docs, "Example") for rule in (*RULES, *HAZARDS, *SKIPPED)}
del EXAMPLES["FM112"]  # is about a comment at the head of a file
GENERATED = range(3000, 3006)


@cache
def fixture(name: str) -> Result:
    root = FIXTURES / name / "fsdp1"
    return run_files({path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.rglob("*.py"))})


@cache
def generated(seed: int) -> Result:
    return run_files(generate(seed))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_fixture(name: str, mutation: Mutation) -> None:
    compare(fixture(name), mutation)


@pytest.mark.parametrize("code", sorted(EXAMPLES))
def test_rule_example(code: str) -> None:
    plain = run_files({"train.py": EXAMPLES[code]})
    for mutation in MUTATIONS:
        compare(plain, mutation)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_generated_programs(mutation: Mutation) -> None:
    for seed in GENERATED:
        compare(generated(seed), mutation)


@pytest.mark.parametrize("syntax", SYNTAX, ids=lambda syntax: syntax.__name__)
def test_no_syntax_stops_the_tool(syntax: Syntax) -> None:
    programs = [dict(fixture(name).before) for name in NAMES]
    programs += [{"train.py": text} for text in EXAMPLES.values()]
    programs += [dict(generated(seed).before) for seed in GENERATED]
    for files in programs:
        result = run_files({path: written_as(syntax, text) for path, text in files.items()})
        assert result.report.errors == ()


def compare(plain: Result, mutation: Mutation) -> None:
    mutant = mutation(dict(plain.before), Random(1))
    if mutant.files == dict(plain.before):
        return
    changed = run_files(mutant.files)
    assert decisions(changed) == decisions(plain)
    assert shape(changed.after, mutant) == shape(plain.after, mutant)


def decisions(result: Result) -> Counter[tuple[str, str]]:
    """How often each rule decided what; that settings stay is a note for each file."""
    return Counter((f.rule, f.level.value) for f in result.findings if not leftover.is_about_data(f))


def shape(files: Files, mutant: Mutant) -> Counter[str]:
    """Each definition and each other statement, wherever it stands, but imports: where names come from."""
    parts: Counter[str] = Counter()
    for text in files.values():
        for node in ast.parse(mutant.undone(text)).body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                parts[ast.unparse(without_imports(node))] += 1
    return parts


def without_imports(node: ast.stmt) -> ast.stmt:
    for inner in ast.walk(node):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(inner, field, None)
            if isinstance(block, list):
                kept = [stmt for stmt in block if not isinstance(stmt, (ast.Import, ast.ImportFrom))]
                setattr(inner, field, kept or [ast.Pass()] if block else [])
    return node


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_changes_most_programs(mutation: Mutation) -> None:
    before = [dict(fixture(name).before) for name in NAMES]
    assert sum(mutation(files, Random(1)).files != files for files in before) > len(NAMES) / 2
