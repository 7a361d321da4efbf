"""The common parts of JUnit XML reports."""

from __future__ import annotations

import xml.etree.ElementTree as ET

_TAGS = {"failures": "failure", "skipped": "skipped", "errors": "error"}


def set_counts(suite: ET.Element) -> None:
    """Set a suite's numbers of failed, skipped and broken cases."""
    for name, tag in _TAGS.items():
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))


def set_totals(root: ET.Element) -> None:
    """Set the sums of the suites' numbers of cases."""
    for name in ("tests", *_TAGS):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))


def render_document(root: ET.Element) -> str:
    """Return an indented document."""
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode")
