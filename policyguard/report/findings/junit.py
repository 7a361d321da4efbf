"""Render findings as JUnit XML: one suite per file, one case per finding.

A file without findings has one passed case. A file that does not load because of an inherited file
has one case with an error. A warning that fails no check is a skipped case, and so is an ignored
finding, with the reason.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import groupby

from policyguard.model.diagnostic import Diagnostic
from policyguard.report.escape import for_xml
from policyguard.report.findings.diagnostics import Findings, render_text
from policyguard.report.junit import render_document, set_counts, set_totals


def render_junit(findings: Findings) -> str:
    """Render what fails a check as failures, with the severity as `type`."""
    root = ET.Element("testsuites")
    reasons = dict(findings.ignored)
    all_findings = sorted((*findings.diagnostics, *reasons), key=lambda found: found.span)
    by_file = {
        file: list(group) for file, group in groupby(all_findings, lambda found: found.span.file)
    }
    for file in dict.fromkeys((*findings.files, *by_file)):
        suite = ET.SubElement(root, "testsuite", name=for_xml(file))
        here = by_file.get(file, [])
        for found in here:
            reason = reasons.get(found)
            if reason is None and not findings.has_failed(found):
                reason = f"{found.severity}: {found.message}"
            _add_case(suite, found, reason)
        broken = file in findings.broken and all(found.severity != "error" for found in here)
        if broken or not here:
            _add_file_case(suite, file, broken=broken)
        suite.set("tests", str(len(suite)))
        set_counts(suite)
    set_totals(root)
    return render_document(root)


def _add_case(suite: ET.Element, found: Diagnostic, reason: str | None) -> None:
    case = ET.SubElement(suite, "testcase", classname=for_xml(found.span.file))
    case.set("name", for_xml(f"{found.code} at {found.span.line}:{found.span.column}"))
    case.set("file", for_xml(found.span.file))
    case.set("line", str(found.span.line))
    if reason is not None:
        ET.SubElement(case, "skipped", message=for_xml(reason))
        return
    failure = ET.SubElement(case, "failure", type=found.severity, message=for_xml(found.message))
    failure.text = for_xml(render_text([found]))


def _add_file_case(suite: ET.Element, file: str, *, broken: bool) -> None:
    """Add the case of a file without findings, or without its own load errors."""
    case = ET.SubElement(suite, "testcase", classname=for_xml(file))
    case.set("name", "can be loaded" if broken else "no findings")
    if broken:
        message = "not checked: a file that it extends has errors"
        ET.SubElement(case, "error", type="error", message=message)
