"""The report as JUnit XML, for a CI's test view: one test case a check."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Tree

from fsdp_migrate.verify.report import CheckRow, Mark, ParityReport

_SUITE = "fsdp-migrate parity"
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: ParityReport) -> str:
    """A `testsuites` document. A failed check is a failure, one that could not look an error, so that CI stays red."""
    suite = Tree.Element("testsuite", name=_SUITE, time=f"{report.seconds:.3f}")
    for row in report.rows:
        _case(suite, row)
    if report.failure is not None:
        case = Tree.SubElement(suite, "testcase", classname=_SUITE, name="run")
        error = Tree.SubElement(case, "error", message=_text(report.failure.message), type=report.verdict.value)
        error.text = _text(f"{report.failure.hint}\n\n{report.failure.traceback or report.failure.log}")
    cases = list(suite)
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("errors", str(sum(case.find("error") is not None for case in cases)))
    root = Tree.Element("testsuites")
    root.append(suite)
    Tree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Tree.tostring(root, encoding="unicode") + "\n"


def _case(suite: Tree.Element, row: CheckRow) -> None:
    case = Tree.SubElement(suite, "testcase", classname=_SUITE, name=_text(f"{row.id} {row.title}"))
    message = _text(f"{row.value} (limit {row.limit}) {row.detail}".strip())
    if row.mark is Mark.FAIL:
        Tree.SubElement(case, "failure", message=message)
    elif row.mark in (Mark.INCONCLUSIVE, Mark.NOT_AVAILABLE):
        Tree.SubElement(case, "error", message=message, type=row.mark.value)
    else:
        Tree.SubElement(case, "system-out").text = message


def _text(text: str) -> str:
    """Without the control characters that XML cannot hold; a traceback may have them."""
    return _NOT_XML.sub("�", text)
