"""The input of the replay, and skipped places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policyguard.report.replay import phrases
from policyguard.report.replay.figures import Figures, SkippedFigures
from policyguard.report.replay.html.components import Column, left_out, section, table
from policyguard.report.replay.html.element import Child, Element, code, element, untrusted


def traces_section(figures: Figures) -> Element:
    """Build the section on files, sessions, calls, labels and skipped places."""
    facts = (
        part
        for name, value in _facts(figures)
        for part in (element("dt", name), element("dd", value))
    )
    skips = figures.traces.skips
    caption = f"Skipped places: {figures.traces.skipped:,}"
    return section(
        "read",
        "What was read",
        element("dl", *facts),
        table(caption, [Column("Place"), Column("Reason")], map(_skip, skips), fold=True),
        left_out(figures.traces.skipped - len(skips), "skipped place", "only the first are listed"),
    )


def _facts(figures: Figures) -> Iterator[tuple[str, str]]:
    traces, labels = figures.traces, figures.labels
    # Members of archives count as files.
    named = (
        f" (in {traces.named_files:,} named)" if traces.named_files not in {0, traces.files} else ""
    )
    yield "Files", f"{traces.files:,}{named}"
    yield "Formats", ", ".join(f"{name} {count:,}" for name, count in traces.formats.items()) or "–"
    yield "Sessions", f"{traces.sessions:,}{phrases.without_calls(traces)}"
    yield "Calls", f"{traces.calls:,}"
    yield "Events", f"{traces.events:,}"
    errors = traces.errors
    yield (
        "Failed results",
        f"{errors.explicit:,} recorded as such, {errors.inferred:,} inferred from text",
    )
    if labels.matched or labels.unmatched:
        yield "Labels", phrases.labels(labels)


def _skip(skip: SkippedFigures) -> Sequence[Child]:
    location = skip.file[-400:] + (f":{skip.line}" if skip.line else "")
    return code(location, 160), untrusted(skip.reason, 240)
