"""The HTML page.

Its Content-Security-Policy allows only its own stylesheet. Even if a text from a recording became
markup, it could neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from importlib import resources

from policyguard.report.replay.figures import Figures
from policyguard.report.replay.html.baseline import baseline_section
from policyguard.report.replay.html.charts import shape_definitions
from policyguard.report.replay.html.components import entry_anchors, policy_name
from policyguard.report.replay.html.coverage import coverage_section
from policyguard.report.replay.html.element import Element, code, document, element, stylesheet
from policyguard.report.replay.html.rules import rules_section
from policyguard.report.replay.html.sessions import sessions_section
from policyguard.report.replay.html.summary import summary_section
from policyguard.report.replay.html.timeline import timelines_section
from policyguard.report.replay.html.traces import traces_section


def render_html(figures: Figures) -> str:
    """Render a self-contained HTML document."""
    css = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    parts = list(_sections(figures))
    skip = element("a", "Skip to the report", href="#report", class_="skip")
    body = element(
        "body",
        skip,
        shape_definitions(),
        _header(figures),
        _contents(parts),
        element("main", *parts, id="report", tabindex="-1"),
        _footer(figures),
    )
    return document(element("html", _head(figures, css), body, lang="en"))


def _head(figures: Figures, css: str) -> Element:
    # Only the stylesheet with this digest is allowed.
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    csp = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=csp),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"policyguard simulate: {figures.policy.name[:60]}"),
        stylesheet(css),
    )


def _header(figures: Figures) -> Element:
    policy, baseline = figures.policy, figures.baseline
    modes = {
        "enforce": "enforce: results of refused calls are dropped",
        "observe": "observe: results of refused calls are kept",
    }
    return element(
        "header",
        element("h1", "What this policy would have done"),
        element(
            "p",
            "Policy ",
            policy_name(policy),
            " compared with " if baseline is not None else None,
            policy_name(baseline.policy) if baseline is not None else None,
        ),
        element("p", f"Replayed in mode {modes.get(policy.mode, policy.mode)}.", class_="faint"),
        _made(figures),
    )


def _made(figures: Figures) -> Element | None:
    if figures.created_at is None:
        return None
    took = f" in {figures.elapsed_s:,.1f} s" if figures.elapsed_s is not None else ""
    shown = figures.created_at.replace("T", " ").replace("Z", " UTC")
    time = element("time", shown, datetime=figures.created_at)
    return element("p", "Made ", time, f"{took}.", class_="faint")


def _sections(figures: Figures) -> Iterator[Element]:
    anchors = {
        index: f"session-{index + 1}" for index, run in enumerate(figures.sessions) if run.timeline
    }
    entries = entry_anchors(figures)
    yield summary_section(figures, entries)
    if figures.baseline is not None:
        yield baseline_section(figures.baseline, entries)
    yield rules_section(figures, entries)
    yield sessions_section(figures, anchors, entries)
    for part in (
        timelines_section(figures, anchors, entries),
        coverage_section(figures.signatures),
    ):
        if part is not None:
            yield part
    yield traces_section(figures)


def _contents(parts: list[Element]) -> Element:
    links = (element("li", element("a", part[0].text, href=f"#{part.get('id')}")) for part in parts)
    return element("nav", element("ul", *links), aria_label="Sections")


def _footer(figures: Figures) -> Element:
    return element(
        "footer",
        element("p", "policyguard simulate, policy ", code(figures.policy.digest, 80)),
        element(
            "p",
            "Refused means ask, block or halt: a replay has no approver. Intervals are 95 % Wilson "
            "score intervals. Runs of one task or agent are not independent, so the true share may "
            "lie outside them.",
        ),
    )
