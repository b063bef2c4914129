"""A program whose new texts fail the check stays as it is, and the report names the rule; others are written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import libcst as cst
import pytest

from codemods.api import SUPPORT, Context, Edit, Fix, Import, Level, Rule, finding
from fsdp_migrate import fix
from fsdp_migrate.edit.check import faults
from fsdp_migrate.findings import Report
from fsdp_migrate.pipeline import Options, migrate
from fsdp_migrate.project.source import Source

WRAP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\ndef wrap(net):\n    return FSDP(net)\n"


def broken(text: str) -> Rule[cst.Call]:
    """A rule with a fault: what it writes for `breaks()`."""

    def fix(call: cst.Call, ctx: Context) -> Fix | None:
        if ctx.code(call.func) != "breaks":
            return None
        return Fix([Edit(*ctx.span(call), text)], [finding("FM999", Level.REWRITTEN, ctx, call, "broken")])

    return Rule("FM999", "broken", "", nodes=(cst.Call,), fix=fix)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    for name, text in {"a/train.py": WRAP + "\n\nbreaks()\n", "b/train.py": WRAP}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, rule: Rule[cst.Call]) -> Report:
    monkeypatch.setattr(fix, "RULES", (*fix.RULES, rule))
    paths = [folder / "a/train.py", folder / "b/train.py"]
    return migrate([Source(path, path.read_text()) for path in paths], Options())


FAULTS = [
    pytest.param(broken("x = ("), "is not Python", id="no Python"),
    pytest.param(broken("undefined_name()"), "`undefined_name`", id="an undefined name"),
    pytest.param(broken("None\nfrom torch import unused"), "imports `unused`", id="an unused import"),
]


MISFITS = [
    pytest.param("no_sync(net, fully=True)", "`fully`, which it does not take", id="an unknown argument"),
    pytest.param("no_sync(net, *args, 1)", "2 positional arguments, and it takes 1", id="too many arguments"),
    pytest.param("model_state_dict(net, destination={})", "`destination`", id="what only torch's takes"),
]


@pytest.mark.parametrize(("call", "words"), MISFITS)
def test_a_call_that_its_support_function_does_not_take_is_not_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: str, words: str
) -> None:
    rule = broken(call)

    def fix(node: cst.Call, ctx: Context) -> Fix | None:
        made = rule.fix(node, ctx)  # type: ignore[arg-type]
        return made and replace(made, imports=[Import(SUPPORT, call.partition("(")[0])])

    report = run(folder, monkeypatch, replace(rule, fix=fix))
    assert [change.path for change in report.changes] == [folder / "b/train.py"]
    assert words in report.errors[0].message
    assert "FM999" in report.errors[0].message


@pytest.mark.parametrize(("rule", "words"), FAULTS)
def test_program_with_a_fault_is_not_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rule: Rule[cst.Call], words: str
) -> None:
    report = run(folder, monkeypatch, rule)
    assert [change.path for change in report.changes] == [folder / "b/train.py"]
    (error,) = report.errors
    assert error.path == folder / "a/train.py"
    assert words in error.message
    assert "report it" in error.hint
    left = [each for each in report.findings if each.path == folder / "a/train.py"]
    assert left
    assert {each.level for each in left} == {Level.MANUAL}


def test_the_report_says_which_rule_did_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rule in (broken("x = ("), broken("undefined_name()")):
        assert "FM999" in run(folder, monkeypatch, rule).errors[0].message


def test_edits_that_overlap(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a/train.py").write_text(WRAP + "\n\nbreaks(FSDP(net))\n")

    def fix(call: cst.Call, ctx: Context) -> Fix | None:
        start, end = ctx.span(call)
        return Fix([Edit(start, end - 3, "broken")]) if ctx.code(call.func) == "breaks" else None

    report = run(folder, monkeypatch, replace(broken(""), fix=fix))
    assert [change.path for change in report.changes] == [folder / "b/train.py"]
    assert "FM101" in report.errors[0].message
    assert "FM999" in report.errors[0].message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("x = y\n", "x = y + 1\n", id="a name that was undefined before"),
        pytest.param("y = f(y)\n", "f(y)\n", id="a name that only held what was made of itself before"),
        pytest.param("import os\n", "import os\nx = 1\n", id="an import that was unused before"),
        pytest.param("def f(:\n", "def f((:\n", id="what was no Python before"),
        pytest.param("", "from x import *\ny\n", id="what a star import may bind"),
        pytest.param("", "from x import y\n__all__ = ['y']\n", id="an import that is exported"),
        pytest.param("", "from x import y\ndef f(a: 'list[y]'): ...\n", id="an import for an annotation in quotes"),
    ],
)
def test_what_is_no_fault(before: str, after: str) -> None:
    assert not list(faults(before, after))


@pytest.mark.parametrize("before", ["y = g(x)\ny = f(y)\n", "import y\ny = f(y)\n", "for y in (): y = f(y)\n"])
def test_a_name_that_was_bound_otherwise_too_is_asked_for(before: str) -> None:
    assert [name for name, _ in faults("def f(x): ...\nx = g = 0\n" + before, "def f(x): ...\nf(y)\n")] == ["y"]
