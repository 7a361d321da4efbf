"""Small charts as inline SVG.

Their content is beside them as text, so they are hidden from screen readers. Each effect has its
own shape besides its colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from policyguard.report.replay.figures import CallFigures, Interval
from policyguard.report.replay.html.element import Element, element

SHAPES = {
    "allow": "M8 5a3 3 0 1 1 0 6a3 3 0 1 1 0-6z",
    "advise": "M8 2L15 14H1z",
    "ask": "M8 1L15 8L8 15L1 8z",
    "block": "M2 1H14V15H2z",
    "halt": "M5 0H11L16 5V11L11 16H5L0 11V5z",
    "unknown": "M8 2a6 6 0 1 1 0 12a6 6 0 1 1 0-12zM8 4.5a3.5 3.5 0 1 0 0 7a3.5 3.5 0 1 0 0-7z",
}
"""SVG paths by effect, in a box of 16 by 16."""


def shape_definitions() -> Element:
    """Define the shapes once for the page."""
    symbols = (
        element("symbol", element("path", d=path), id=f"shape-{name}", viewBox="0 0 16 16")
        for name, path in SHAPES.items()
    )
    return element("svg", *symbols, class_="defined", width="0", height="0", aria_hidden="true")


def icon(effect: str) -> Element:
    """Draw an effect's shape."""
    use = element("use", href=f"#shape-{effect}")
    return element("svg", use, class_=f"icon {effect}", viewBox="0 0 16 16", aria_hidden="true")


def interval(rate: float | None, ends: Interval | None) -> Element:
    """Draw a share on a line from 0 to 100 %, with its interval as a band."""
    marks = [element("line", x1="0", x2="100%", y1="50%", y2="50%")]
    if rate is not None and ends is not None:
        low, high = ends
        marks.append(_bar("band", low, high - low, "25%", "50%"))
    if rate is not None:
        marks.append(element("circle", cx=_percent(rate), cy="50%", r="4"))
    return element("svg", *marks, class_="interval", aria_hidden="true")


def bar(share: float) -> Element:
    """Draw a share as a bar."""
    marks = (_bar("whole", 0, 1, "0", "100%"), _bar("part", 0, share, "0", "100%"))
    return element("svg", *marks, class_="bar", aria_hidden="true")


def stacked(parts: Iterable[tuple[str, int]]) -> Element:
    """Draw named counts as one stacked bar."""
    counts = [(name, count) for name, count in parts if count]
    total = sum(count for _, count in counts) or 1
    start, marks = 0, []
    for name, count in counts:
        marks.append(_bar(name, start / total, count / total, "0", "100%"))
        start += count
    return element("svg", *marks, class_="stacked", aria_hidden="true")


def call_strip(calls: Sequence[CallFigures]) -> Element:
    """Draw calls as a row of shapes: failed ones underlined, a gap for calls left out."""
    marks: list[Element] = []
    before = -1
    for call in calls:
        flags = {
            "later": call.index > before + 1,
            "failed": call.recorded.startswith("failed"),
            "counterfactual": call.counterfactual,
        }
        kinds = ["mark", *(kind for kind, holds in flags.items() if holds)]
        marks.append(element("span", icon(call.effect), class_=" ".join(kinds)))
        before = call.index
    return element("span", *marks, class_="strip", aria_hidden="true")


def _bar(name: str, start: float, length: float, y: str, height: str) -> Element:
    width = _percent(length)
    return element("rect", class_=name, x=_percent(start), width=width, y=y, height=height)


def _percent(share: float) -> str:
    return f"{share:.4%}"
