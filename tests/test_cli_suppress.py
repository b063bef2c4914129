"""`# fsdp-migrate: ignore[...]`."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods.api import Finding, Level
from fsdp_migrate.comments import comments
from fsdp_migrate.findings import Report
from fsdp_migrate.suppress import CODE, suppress

HERE = Path("/p/train.py")


def found(*rules: str, line: int = 1) -> Report:
    return Report(tuple(Finding(rule, Level.MANUAL, HERE, line, 1, "message") for rule in rules))


def after(text: str, report: Report) -> tuple[list[str], int]:
    result, silenced = suppress(report, {HERE: text})
    return [finding.rule for finding in result.findings], silenced


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n",
        "x = 1  # noqa\n",
        "x = '# fsdp-migrate: ignore[FM101]'\n",
        '"""\n# fsdp-migrate: ignore\n"""\n',
        "x = 1  # fsdp-migrate: rewrote this\n",
        "y = (  # unfinished: fsdp-migrate: ignore\n",
    ],
)
def test_what_is_no_such_comment(text: str) -> None:
    assert list(comments(text, "ignore")) == []
    assert after(text, found("FM101")) == (["FM101"], 0)


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("# fsdp-migrate: ignore[FM101]", ["FM203"]),
        ("# fsdp-migrate:ignore[FM101]", ["FM203"]),
        ("# fsdp-migrate: ignore[FM101, FM203]", []),
        ("# fsdp-migrate: ignore", []),
        ("# why  # fsdp-migrate: ignore[FM203]", ["FM101"]),
    ],
)
def test_what_is_silenced(comment: str, left: list[str]) -> None:
    assert after(f"x = 1  {comment}\n", found("FM101", "FM203")) == (left, 2 - len(left))


def test_only_on_its_line() -> None:
    rules, silenced = after("x = 1  # fsdp-migrate: ignore[FM101]\ny = 2\n", found("FM101", line=2))
    assert (rules, silenced) == ([CODE, "FM101"], 0)


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("# fsdp-migrate: ignore[FM301]", "this comment silences FM301, which is not found here"),
        ("# fsdp-migrate: ignore", "this comment silences nothing"),
    ],
)
def test_an_unused_one_is_reported(comment: str, message: str) -> None:
    result, _ = suppress(Report(), {HERE: f"x = 1  {comment}\n"})
    (finding,) = result.findings
    assert (finding.rule, finding.message, finding.line, finding.column) == (CODE, message, 1, 8)


def test_a_rule_that_did_not_run_cannot_be_called_unused() -> None:
    text = {HERE: "x = 1  # fsdp-migrate: ignore[FM301]\n"}
    assert suppress(Report(), text, lambda code: code != "FM301")[0].findings == ()
    assert suppress(Report(), text, lambda code: code != CODE)[0].findings == ()
