"""Nothing stands in a support file that no call of its program reaches: definitions, parameters, branches."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from codemods import HAZARDS, RULES, SKIPPED
from fsdp_migrate.support import available
from fsdp_migrate.support.library import library

from ..helpers import SUPPORT, code, rewrite_files, run_files
from ..oracle.programs import generate
from ..test_rule_docs import snippet

FIXTURES = Path(__file__).parents[2] / "fixtures"
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/fsdp1"))
EXAMPLES = {rule.code: snippet(rule.docs, "Example") for rule in (*RULES, *HAZARDS, *SKIPPED)}

# What a user's code may call by its position, from anywhere: FSDP1's own names.
OPEN = {
    *("always_wrap_policy", "lambda_auto_wrap_policy", "transformer_auto_wrap_policy", "size_based_auto_wrap_policy"),
    *("_or_policy", "_module_wrap_policy", "enable_wrap", "wrap"),
}


@pytest.mark.parametrize("name", NAMES)
def test_fixture(name: str) -> None:
    root = FIXTURES / name / "fsdp1"
    files = {path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.rglob("*.py"))}
    assert list(unreached(run_files(files).after)) == []


@pytest.mark.parametrize("rule", sorted(EXAMPLES))
def test_rule_example(rule: str) -> None:
    assert list(unreached(run_files({"train.py": EXAMPLES[rule]}).after)) == []


@pytest.mark.parametrize("seed", range(3000, 3010))
def test_generated_program(seed: int) -> None:
    assert list(unreached(run_files(generate(seed)).after)) == []


def unreached(files: Mapping[str, str]) -> Iterator[str]:
    """What could be taken out of the support functions of a program."""
    trees = {name: ast.parse(text) for name, text in files.items()}
    ours = available()
    named: set[str] = set()
    for tree in trees.values():
        named |= {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    everything = [node for tree in trees.values() for node in ast.walk(tree)]
    read = {node.id for node in everything if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    calls = [node for node in everything if isinstance(node, ast.Call)]
    for name, tree in trees.items():
        for node in tree.body:
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name not in ours:
                continue
            if name.endswith(SUPPORT) and node.name not in read | named:
                yield f"{node.name}: nobody uses it"
            if isinstance(node, ast.FunctionDef):
                yield from unpassed(node, calls, everything)
            yield from decided(node)


def unpassed(function: ast.FunctionDef, calls: list[ast.Call], nodes: list[ast.AST]) -> Iterator[str]:
    """The parameters that every call leaves at their default."""
    uses = [node for node in nodes if isinstance(node, ast.Name) and node.id == function.name]
    called = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == function.name]
    if function.name in OPEN or len(uses) > len(called) or any(opaque(call) for call in called):
        return
    names = [arg.arg for arg in (*function.args.args, *function.args.kwonlyargs)]
    for index, name in enumerate(names):
        if not any(len(call.args) > index or any(each.arg == name for each in call.keywords) for call in called):
            yield f"{function.name}: nobody passes {name}"


def opaque(call: ast.Call) -> bool:
    return any(isinstance(arg, ast.Starred) for arg in call.args) or any(not each.arg for each in call.keywords)


def decided(function: ast.AST) -> Iterator[str]:
    """The conditions that hold always or never."""
    for node in ast.walk(function):
        test = node.test if isinstance(node, (ast.If, ast.IfExp)) else None
        parts = [test] if test is not None else node.values if isinstance(node, ast.BoolOp) else []
        for part in parts:
            if isinstance(part, ast.Constant) or is_known(part):
                yield f"line {part.lineno}: {ast.unparse(part)}"


def is_known(test: ast.expr) -> bool:
    """`None is None`."""
    return isinstance(test, ast.Compare) and all(
        isinstance(each, ast.Constant) for each in (test.left, *test.comparators)
    )


ACCUMULATE = code("""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    model = FSDP(net)
    {}
""")


def written(use: str) -> str:
    result = rewrite_files({"train.py": ACCUMULATE.format(use)})
    return result.after[SUPPORT]


def test_a_parameter_that_no_call_passes_is_not_there() -> None:
    text = written("with FSDP.summon_full_params(model):\n    print_all(model)")
    assert "def summon_full_params(module: nn.Module) -> Generator[None, None, None]:\n" in text
    assert "rank0_only" not in text
    both = written("with FSDP.summon_full_params(model, recurse=sub):\n    print_all(model)")
    assert "recurse: bool = True" in both
    assert "if recurse else unit_modules(module)" in both


def test_a_second_run_with_other_calls_widens_what_is_still_ours() -> None:
    first = {"train.py": ACCUMULATE.format("with FSDP.summon_full_params(model):\n    print_all(model)")}
    second = "with FSDP.summon_full_params(model, recurse=sub):\n    print_all(model)"
    done = rewrite_files(first).after
    wider = rewrite_files({**done, "tune.py": "import train\n" + ACCUMULATE.format(second)}).after[SUPPORT]
    assert wider == written(second)
    assert library().definitions.keys() >= {"summon_full_params"}


def test_what_the_user_edited_is_not_cut_anew() -> None:
    first = {"train.py": ACCUMULATE.format("with FSDP.summon_full_params(model):\n    print_all(model)")}
    done = dict(rewrite_files(first).after)
    done[SUPPORT] += "\n\nMINE = 1\n"
    use = "with FSDP.summon_full_params(model, recurse=sub):\n    print_all(model)"
    report = run_files({**done, "tune.py": "import train\n" + ACCUMULATE.format(use)}).report
    (error,) = report.errors
    assert error.path.name == SUPPORT
    assert "edited since it was written, and lacks summon_full_params(recurse)" in error.message
