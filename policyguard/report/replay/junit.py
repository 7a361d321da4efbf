"""Render a replay's figures as JUnit XML: one suite per trace file, one case per session.

A case fails if a successful run has a call refused. It is skipped if that is undetermined.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import groupby

from policyguard.report.escape import for_terminal
from policyguard.report.junit import render_document, set_counts, set_totals
from policyguard.report.replay import phrases
from policyguard.report.replay.figures import Figures, GateFigures, RunFigures


def render_junit(figures: Figures) -> str:
    """Render the listed sessions, and a suite for `--fail-on` conditions."""
    root = ET.Element("testsuites")
    if figures.gates:
        suite = _suite(root, "--fail-on", len(figures.gates))
        for gate in figures.gates:
            _gate(suite, gate)
        set_counts(suite)
    # The sessions of a file are consecutive, unless an archive contains a name twice.
    for file, runs in groupby(figures.sessions, key=lambda run: run.file):
        sessions = list(runs)
        suite = _suite(root, file, len(sessions))
        for run in sessions:
            _case(suite, run)
        set_counts(suite)
    notes = list(_notes(figures))
    if notes:
        suite = _suite(root, "not listed", 0)
        ET.SubElement(suite, "system-out").text = "; ".join(notes)
        set_counts(suite)
    set_totals(root)
    return render_document(root)


def _notes(figures: Figures) -> Iterator[str]:
    if figures.partial or figures.left_out:
        yield f"{phrases.count(figures.left_out, 'session')} without a case"
    if figures.partial:
        yield "interrupted: this report is incomplete"
    yield from (for_terminal(sentence) for sentence in phrases.absent_tools(figures, 6))
    if figures.labels.unmatched:
        yield phrases.unmatched_labels(figures.labels)


def _suite(root: ET.Element, name: str, tests: int) -> ET.Element:
    return ET.SubElement(root, "testsuite", name=for_terminal(name), tests=str(tests))


def _gate(suite: ET.Element, gate: GateFigures) -> None:
    case = ET.SubElement(suite, "testcase", classname="--fail-on")
    case.set("name", for_terminal(gate.expression))
    if gate.triggered is not False:
        failure = ET.SubElement(case, "failure", type="fail-on")
        failure.set("message", for_terminal(phrases.gate(gate)))


def _case(suite: ET.Element, run: RunFigures) -> None:
    case = ET.SubElement(suite, "testcase", classname=for_terminal(run.file))
    case.set("name", for_terminal(run.id))
    case.set("file", for_terminal(run.file))
    lines = [f"{phrases.count(run.calls, 'call')}, {run.refused} refused"]
    if run.first_refusal is not None:
        first = for_terminal(run.first_message or "", 400)
        message = f"call {run.first_refusal + 1} (`{for_terminal(run.first_tool or '', 60)}`): "
        lines.append(f"{message}{first} [{for_terminal(run.first_rule or '', 100)}]")
        if run.success:
            failure = ET.SubElement(case, "failure", type=for_terminal(run.first_rule or "", 100))
            failure.set("message", f"this run succeeded; {message}{first}")
            failure.text = "\n".join(lines)
            return
    elif run.unknown:
        skipped = ET.SubElement(case, "skipped")
        skipped.set(
            "message",
            f"{phrases.count(run.unknown, 'call')} undetermined, because the recording lacks the "
            "necessary data",
        )
    ET.SubElement(case, "system-out").text = "\n".join(lines)
