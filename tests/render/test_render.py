"""Renderers: what people see, and the documents that machines read."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from codemods.api import Finding, Level
from fsdp_migrate.findings import Change, FileError, Report
from fsdp_migrate.render import github, junit, sarif, text
from fsdp_migrate.render import json as as_json
from fsdp_migrate.render.nothing import Remains
from fsdp_migrate.render.view import Command, RuleInfo, View, exit_code

HOME = Path("/project").resolve()
TRAIN = HOME / "src" / "train.py"
DONE = Finding("FM101", Level.REWRITTEN, TRAIN, 3, 9, "constructor call becomes fully_shard")
LOOK = Finding("FM201", Level.REVIEW, TRAIN, 5, 1, "no_sync becomes a flag", "see that the loop ends in step")
YOURS = Finding("FM203", Level.MANUAL, TRAIN, 8, 1, "summon_full_params: 100%, a\nb", "use full_tensor()")
FSDP2_LINT = Finding("FM501", Level.MANUAL, TRAIN, 9, 1, "only the root is sharded", "shard the blocks too")
ADVICE = Finding("FM503", Level.REVIEW, TRAIN, 9, 1, "advice")
UNUSED = Finding("FM001", Level.REVIEW, TRAIN, 1, 1, "this comment silences nothing")
BROKEN = FileError(HOME / "broken.py", "line 3: invalid syntax", "mend it")
RULES = {"FM101": RuleInfo("FM101", "fsdp-constructor", "**What it does.** Docs.")}


def view(*findings: Finding, command: Command = Command.REWRITE, **more: object) -> View:
    errors = more.pop("errors", ())
    report = Report(findings, (Change(TRAIN, "a", "b"),) if findings else (), errors, 4)  # type: ignore[arg-type]
    return View(report, command, HOME, rules=RULES, **more)  # type: ignore[arg-type]


def last_line(shown: View) -> str:
    return text.render(shown).splitlines()[-1]


@pytest.mark.parametrize(
    ("remains", "message"),
    [
        (Remains.NOTHING, "Found 0 FSDP1 constructs in 4 Python files: there is no FSDP here."),
        (Remains.FSDP2, "Found 0 FSDP1 constructs in 4 Python files: this is FSDP2 already."),
        (
            Remains.FSDP1,
            "Found 0 FSDP1 constructs in 4 Python files, but FSDP1 is still named in them (src/train.py:7).",
        ),
    ],
)
def test_three_ways_of_nothing_to_do(remains: Remains, message: str) -> None:
    mention = (TRAIN, 7) if remains is Remains.FSDP1 else None
    assert text.render(view(remains=remains, mention=mention)) == message + "\n"


def test_full_text() -> None:
    assert text.render(view(DONE, LOOK, errors=(BROKEN,)), done=["Rewrote src/train.py"]) == (
        "src/train.py:3:9: FM101 rewritten constructor call becomes fully_shard\n"
        "src/train.py:5:1: FM201 review no_sync becomes a flag\n"
        "    see that the loop ends in step\n"
        "Rewrote src/train.py\n"
        "Found 2 FSDP1 constructs: 1 rewritten, 1 needs review, 0 need you. 1 file could not be read or written.\n"
    )


def test_what_to_do_about_several_in_a_row_is_said_once() -> None:
    lines = text.render(view(YOURS, replace(YOURS, line=9), LOOK, YOURS)).splitlines()
    assert [line.strip() for line in lines if line.startswith("    ")] == [YOURS.hint, LOOK.hint, YOURS.hint]


def test_concise_text_is_one_line_a_finding() -> None:
    assert text.render(view(DONE, LOOK, YOURS), "concise").count("\n") == 4


def test_quiet_text_leaves_out_what_is_done() -> None:
    shown = text.render(view(DONE, LOOK), "quiet", done=["Rewrote src/train.py"])
    assert "FM101" not in shown
    assert "Rewrote" not in shown
    assert "FM201" in shown


@pytest.mark.parametrize(
    ("findings", "command", "line"),
    [
        ((DONE,), Command.REWRITE, "Found 1 FSDP1 construct: 1 rewritten, 0 need review, 0 need you."),
        ((DONE, YOURS), Command.REWRITE, "Found 2 FSDP1 constructs: 1 rewritten, 0 need review, 1 needs you."),
        (
            (DONE, LOOK),
            Command.CHECK,
            "Found 2 FSDP1 constructs: `fsdp-migrate rewrite` can do 1, 1 needs review, 0 need you.",
        ),
        ((FSDP2_LINT,), Command.CHECK, "Found 1 place that breaks the FSDP2 contract."),
        (
            (YOURS, FSDP2_LINT, ADVICE),
            Command.REWRITE,
            "Found 1 FSDP1 construct: 0 rewritten, 0 need review, 1 needs you."
            " Found 1 place that breaks the FSDP2 contract. 1 hint on FSDP2 code.",
        ),
        (
            (FSDP2_LINT, FSDP2_LINT, ADVICE),
            Command.CHECK,
            "Found 2 places that break the FSDP2 contract. 1 hint on FSDP2 code.",
        ),
        ((ADVICE, ADVICE), Command.CHECK, "2 hints on FSDP2 code."),
        ((UNUSED,), Command.CHECK, "Found 1 unused ignore comment."),
    ],
)
def test_the_last_line_counts(findings: tuple[Finding, ...], command: Command, line: str) -> None:
    assert last_line(view(*findings, command=command)) == line


def test_what_is_ignored_is_counted() -> None:
    assert last_line(view(DONE, ignored=3)).endswith("0 need you. 3 ignored.")
    assert last_line(view(ignored=3)).endswith("there is no FSDP here. 3 ignored.")


def test_colour_is_only_paint() -> None:
    painted = text.render(view(DONE), paint=text.coloured)
    assert "\x1b[" in painted
    assert "\x1b[" not in text.render(view(DONE))


def test_paths_outside_the_folder_are_absolute() -> None:
    assert view().shown(Path("/elsewhere/x.py")) == "/elsewhere/x.py"
    assert view().shown(TRAIN) == "src/train.py"


@pytest.mark.parametrize(
    ("findings", "command", "strict", "code"),
    [
        ((), Command.REWRITE, True, 0),
        ((DONE,), Command.REWRITE, True, 0),
        ((LOOK,), Command.REWRITE, False, 0),
        ((LOOK,), Command.REWRITE, True, 1),
        ((YOURS,), Command.REWRITE, False, 1),
        ((), Command.CHECK, True, 0),
        ((DONE,), Command.CHECK, False, 1),
        ((LOOK,), Command.CHECK, False, 1),
        ((FSDP2_LINT,), Command.CHECK, False, 1),
        ((ADVICE,), Command.CHECK, False, 0),
        ((ADVICE,), Command.CHECK, True, 1),
        ((UNUSED,), Command.CHECK, False, 1),
    ],
)
def test_exit_codes(findings: tuple[Finding, ...], command: Command, strict: bool, code: int) -> None:
    assert exit_code(view(*findings, command=command), strict) == code
    assert exit_code(view(*findings, command=command, errors=(BROKEN,)), strict) == 2


def test_json_holds_everything() -> None:
    document = json.loads(as_json.render(view(DONE, YOURS, errors=(BROKEN,), ignored=1)))
    assert document["findings"][1] == {
        "rule": "FM203",
        "name": "FM203",
        "level": "manual",
        "path": "src/train.py",
        "line": 8,
        "column": 1,
        "also": [],
        "message": YOURS.message,
        "hint": "use full_tensor()",
        "through_support": False,
    }
    assert document["changed"] == ["src/train.py"]
    assert document["errors"][0]["path"] == "broken.py"
    assert document["summary"] == {
        "files": 4,
        "found": 2,
        "rewritten": 1,
        "review": 0,
        "manual": 1,
        "kept": 0,
        "ignored": 1,
        "errors": 1,
        "remains": "nothing",
    }


def test_sarif_is_what_code_scanning_reads() -> None:
    document = json.loads(sarif.render(view(DONE, YOURS, errors=(BROKEN,))))
    (run,) = document["runs"]
    assert document["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["FM101", "FM203"]
    assert run["tool"]["driver"]["rules"][0]["help"]["text"] == "**What it does.** Docs."
    result = run["results"][1]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "FM203"
    assert result["level"] == "error"
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "src/train.py"},
        "region": {"startLine": 8, "startColumn": 1},
    }
    assert run["invocations"][0]["executionSuccessful"] is False


def test_sarif_of_nothing() -> None:
    (run,) = json.loads(sarif.render(view()))["runs"]
    assert run["results"] == []


def test_github_commands_are_escaped() -> None:
    lines = github.render(view(DONE, YOURS, errors=(BROKEN,))).splitlines()
    assert lines == [
        "::warning file=src/train.py,line=3,col=9,title=FM101 fsdp-constructor::constructor call becomes fully_shard",
        "::error file=src/train.py,line=8,col=1,title=FM203 FM203::"
        "summon_full_params: 100%25, a%0Ab. use full_tensor()",
        "::error file=broken.py,title=fsdp-migrate::line 3: invalid syntax. mend it",
    ]
    assert github.render(view()) == ""


def test_junit_is_xml_with_a_case_for_each_finding() -> None:
    odd = Finding("FM101", Level.MANUAL, TRAIN, 1, 1, "<a> & \x00 \x1b")
    (suite,) = ElementTree.fromstring(junit.render(view(DONE, odd, errors=(BROKEN,))))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "2", "1")
    cases = list(suite)
    assert [case[0].tag for case in cases] == ["failure", "failure", "error"]
    assert cases[0].get("file") == "src/train.py"


def test_junit_of_nothing_is_one_passed_test() -> None:
    (suite,) = ElementTree.fromstring(junit.render(view()))
    assert suite.get("tests") == "1"
    assert len(list(suite[0])) == 0
