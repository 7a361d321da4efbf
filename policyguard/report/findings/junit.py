"""Findings as JUnit XML, as CI servers read it: a suite a file, a case a finding.

A file without findings is one case that passed. One that does not load without an error of its own
has a case for that, which is an error: what it extends is broken. What a comment ignores is a case
that was skipped, with the comment's reason.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import groupby

from policyguard.model.diagnostic import Diagnostic
from policyguard.report.escape import for_xml
from policyguard.report.findings.diagnostics import render_text
from policyguard.report.findings.findings import Findings
from policyguard.report.policy_tests.junit import junit_document


def render_junit(findings: Findings) -> str:
    """Errors and warnings both are failures; `type` has the severity."""
    root = ET.Element("testsuites")
    reasons = dict(findings.ignored)
    everything = sorted((*findings.diagnostics, *reasons), key=lambda found: found.span)
    by_file = {file: list(group) for file, group in groupby(everything, lambda one: one.span.file)}
    for file in dict.fromkeys((*findings.files, *by_file)):
        suite = ET.SubElement(root, "testsuite", name=for_xml(file))
        here = by_file.get(file, [])
        for found in here:
            _case(suite, found, reasons.get(found))
        broken = file in findings.broken and all(one.severity != "error" for one in here)
        if broken or not here:
            _nothing(suite, file, broken=broken)
        _count(suite)
    for kind in ("tests", "failures", "skipped", "errors"):
        root.set(kind, str(sum(int(suite.get(kind, "0")) for suite in root)))
    return junit_document(root)


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


def _nothing(suite: ET.Element, file: str, *, broken: bool) -> None:
    """The case of a file that nothing was found in, or nothing that keeps it from loading."""
    case = ET.SubElement(suite, "testcase", classname=for_xml(file))
    case.set("name", "can be loaded" if broken else "no findings")
    if broken:
        message = "not checked: a file that it extends has errors"
        ET.SubElement(case, "error", type="error", message=message)


def _count(suite: ET.Element) -> None:
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
