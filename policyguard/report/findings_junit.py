"""Findings as JUnit XML, as CI servers read it: a suite a file, a case a finding.

A file without findings is one case that passed. What a comment ignores is a case that was skipped,
with the comment's reason.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import groupby

from policyguard.model.diagnostic import Diagnostic
from policyguard.report.diagnostics import render_text
from policyguard.report.escape import for_xml
from policyguard.report.findings import Findings
from policyguard.report.junit import document


def render_junit(findings: Findings) -> str:
    """Errors and warnings both are failures; `type` has the severity."""
    root = ET.Element("testsuites")
    reasons = dict(findings.ignored)
    everything = sorted((*findings.diagnostics, *reasons), key=lambda found: found.span)
    by_file = {file: list(group) for file, group in groupby(everything, lambda one: one.span.file)}
    for file in dict.fromkeys((*findings.files, *by_file)):
        suite = ET.SubElement(root, "testsuite", name=for_xml(file))
        for found in by_file.get(file, ()):
            _case(suite, found, reasons.get(found))
        if file not in by_file:
            ET.SubElement(suite, "testcase", classname=for_xml(file), name="no findings")
        _count(suite)
    for kind in ("tests", "failures", "skipped"):
        root.set(kind, str(sum(int(suite.get(kind, "0")) for suite in root)))
    root.set("errors", "0")
    return document(root)


def _case(suite: ET.Element, found: Diagnostic, reason: str | None) -> None:
    case = ET.SubElement(suite, "testcase", classname=for_xml(found.span.file))
    case.set("name", for_xml(f"{found.code} at {found.span.line}:{found.span.column}"))
    case.set("file", for_xml(found.span.file))
    case.set("line", str(found.span.line))
    if reason is not None:
        ET.SubElement(case, "skipped", message=for_xml(reason))
        return
    failure = ET.SubElement(case, "failure", type=found.severity, message=for_xml(found.message))
    failure.text = for_xml(render_text([found]))


def _count(suite: ET.Element) -> None:
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suite.set("errors", "0")
