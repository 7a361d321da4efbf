"""Render results of policy tests as JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from policyguard.report.escape import for_terminal, for_xml
from policyguard.report.findings.diagnostics import render_text as diagnostics_text
from policyguard.report.findings.diagnostics import sort_unique
from policyguard.report.junit import render_document
from policyguard.report.policy_tests.rendering import MAX_LINE, render_coverage, render_failure
from policyguard.report.policy_tests.results import FileResult, TestReport


def render_junit(report: TestReport) -> str:
    """Render one suite per file, with an error if the file could not be run.

    Coverage is the output of an empty suite, because JUnit has no element for it.
    """
    root = ET.Element(
        "testsuites",
        tests=str(report.passed + report.failed + report.broken),
        failures=str(report.failed),
        errors=str(report.broken),
        time=f"{report.seconds:.3f}",
    )
    for file in report.files:
        _suite(root, file)
    for coverage in report.coverage or ():
        name = for_xml(f"coverage of {coverage.policy}")
        suite = ET.SubElement(root, "testsuite", name=name, tests="0", failures="0", errors="0")
        ET.SubElement(suite, "system-out").text = for_xml(render_coverage(coverage))
    return render_document(root)


def _suite(root: ET.Element, file: FileResult) -> None:
    broken = bool(file.errors)
    suite = ET.SubElement(
        root,
        "testsuite",
        name=for_xml(file.file),
        tests=str(len(file.tests) + broken),
        failures=str(sum(bool(test.failures) for test in file.tests)),
        errors=str(int(broken)),
        time=f"{sum(test.seconds for test in file.tests):.3f}",
    )
    if broken:
        case = ET.SubElement(suite, "testcase", classname=for_xml(file.file), name="can be run")
        first = sort_unique(file.errors)[0]
        error = ET.SubElement(case, "error", message=for_xml(first.message), type=first.code)
        error.text = for_xml(diagnostics_text(file.errors))
    for test in file.tests:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=for_xml(file.file),
            name=for_xml(test.name),
            file=for_xml(file.file),
            line=str(test.line),
            time=f"{test.seconds:.3f}",
        )
        if test.failures:
            mismatch = test.failures[0].mismatches[0]
            message = f"expected {mismatch.expected}, found {mismatch.found}"
            message = for_xml(for_terminal(message, MAX_LINE))
            failure = ET.SubElement(case, "failure", message=message)
            failure.text = for_xml("\n".join(render_failure(one) for one in test.failures))
