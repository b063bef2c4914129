"""JUnit XML, for CI systems that show test results: a finding is a failed test, an unreadable file an error."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from .view import View

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(view: View) -> str:
    """One test suite; with nothing found, one passed test, because some systems reject an empty suite."""
    findings, errors = view.report.findings, view.report.errors
    suite = ElementTree.Element(
        "testsuite",
        name="fsdp-migrate",
        tests=str(len(findings) + len(errors) or 1),
        failures=str(len(findings)),
        errors=str(len(errors)),
    )
    for finding in findings:
        path = view.uri(finding.path)
        case = _case(suite, finding.rule, path, finding.line)
        message = _clean(finding.message)
        failure = ElementTree.SubElement(case, "failure", type=view.word(finding.level), message=message)
        failure.text = _clean(f"{path}:{finding.line}:{finding.column}: {finding.message}\n{finding.hint}".rstrip())
    for error in errors:
        case = _case(suite, "unreadable", view.uri(error.path), 0)
        ElementTree.SubElement(case, "error", message=_clean(error.message)).text = _clean(error.hint)
    if not findings and not errors:
        ElementTree.SubElement(suite, "testcase", name="no findings", classname="fsdp-migrate")
    root = ElementTree.Element("testsuites", name="fsdp-migrate")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, name: str, path: str, line: int) -> ElementTree.Element:
    place = {"line": str(line)} if line else {}
    return ElementTree.SubElement(
        suite, "testcase", {"name": f"{name} {path}:{line}", "classname": path, "file": path, **place}
    )


def _clean(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return NOT_IN_XML.sub("�", text)
