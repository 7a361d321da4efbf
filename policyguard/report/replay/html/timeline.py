"""Timelines: the policy's effect and the recorded outcome of each call of a session.

All calls after the first divergence are marked as counterfactual.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby

from policyguard.report.replay import phrases
from policyguard.report.replay.figures import CallFigures, Figures, RunFigures
from policyguard.report.replay.html.charts import SHAPES, call_strip
from policyguard.report.replay.html.components import (
    effect_label,
    entry_link,
    outcome_label,
    section,
    session_name,
)
from policyguard.report.replay.html.element import Element, code, element, untrusted

_RECORDED = {
    "ok": "ran",
    "failed": "failed",
    "failed (inferred)": "failed (inferred from its text)",
    "unknown": "ran, status unknown",
    "refused": "was refused",
    "none": "no result",
}
_SECOND = 1_000_000_000


def timelines_section(
    figures: Figures, anchors: Mapping[int, str], entries: Mapping[str, str]
) -> Element | None:
    """Build the sessions' timelines, refused and successful ones first.

    `anchors` are their ids in the page, `entries` those of the policy's entries.
    """
    runs = [(figures.sessions[index], anchor) for index, anchor in anchors.items()]
    if not runs:
        return None
    runs.sort(key=lambda pair: (not pair[0].refused, pair[0].success is not True))
    all_ = len(figures.sessions) + figures.left_out
    intro = (
        f"The calls of {len(runs):,} of {phrases.count(all_, 'session')} (--timelines for more), "
        "those with refusals first. A long session shows its beginning and the calls around its "
        "first divergence."
    )
    legend = (element("li", effect_label(name)) for name in SHAPES)
    return section(
        "timelines",
        "Timelines",
        element("p", intro),
        element(
            "ul",
            *legend,
            element("li", element("span", "underlined", class_="underlined"), ": failed"),
            element("li", element("span", "grey", class_="faint"), ": counterfactual"),
            class_="legend",
        ),
        *(
            _timeline(
                run, anchor, entries, first=number == 0, compared=figures.baseline is not None
            )
            for number, (run, anchor) in enumerate(runs)
        ),
    )


def _timeline(
    run: RunFigures, anchor: str, entries: Mapping[str, str], *, first: bool, compared: bool
) -> Element:
    calls = run.timeline
    start = next((call.at for call in calls if call.at is not None), None)
    times = "No recorded times." if start is None else f"Times from {_date(start)} on."
    title = element("h3", session_name(run.id, run.file), " ", outcome_label(run.success))
    return element(
        "details",
        element(
            "summary", title, element("span", _totals(run), class_="totals"), call_strip(calls)
        ),
        # A link to an inner element opens its <details>.
        element(
            "div",
            element("p", times, class_="faint"),
            *_parts(calls, start, entries, compared=compared),
            _end(run.calls - calls[-1].index - 1),
            id=anchor,
        ),
        class_="timeline",
        open="" if first else None,
    )


def _totals(run: RunFigures) -> str:
    text = phrases.count(run.calls, "call")
    if run.refused:
        first = (run.first_refusal or 0) + 1
        text += f", {run.refused:,} refused, the first of them call {first:,}"
    if run.unknown:
        text += f", {run.unknown:,} unknown"
    return text


def _parts(
    calls: Sequence[CallFigures], start: int | None, entries: Mapping[str, str], *, compared: bool
) -> Iterator[Element]:
    """Yield the lists of factual and of counterfactual calls."""
    before = -1
    for counterfactual, group in groupby(calls, key=lambda call: call.counterfactual):
        items: list[Element | None] = []
        for call in group:
            items += (_gap(call.index - before - 1), _call(call, start, entries))
            before = call.index
        if counterfactual:
            either = " under one of the two policies" if compared else ""
            yield element(
                "p",
                f"Counterfactual from here: the call above would have ended differently{either}, "
                "so the agent would have acted differently.",
                class_="divergence",
            )
        kind = "calls counterfactual" if counterfactual else "calls"
        label = "Counterfactual calls" if counterfactual else "Calls"
        yield element("ol", *items, class_=kind, role="list", aria_label=label)


def _call(call: CallFigures, start: int | None, entries: Mapping[str, str]) -> Element:
    recorded = _RECORDED[call.recorded]
    failed = " failed" if recorded.startswith("failed") else ""
    has_result = call.recorded == "ok" and call.result is not None
    return element(
        "li",
        element(
            "p",
            element("span", f"{call.index + 1:,}", class_="index"),
            " ",
            effect_label(call.effect),
            " ",
            code(call.tool, 60),
            " ",
            element("span", _since(call.at, start), class_="faint"),
            " ",
            None
            if has_result
            else element("span", f"recorded: {recorded}", class_=f"recorded{failed}"),
            class_="head",
        ),
        element("p", "arguments not recorded" if call.args is None else code(call.args, 241)),
        _result(call),
        _failure(call),
        _violation(call, entries),
        _baseline(call),
        class_=f"call {call.effect}",
    )


def _violation(call: CallFigures, entries: Mapping[str, str]) -> Element | None:
    if call.rule is None:
        return None
    message = untrusted(call.message or "", 241)
    return element("p", entry_link(call.rule, entries, 100), ": ", message)


def _result(call: CallFigures) -> Element | None:
    if call.result is None:
        return None
    text = code(call.result, 241) if call.result.strip() else "empty"
    return element("p", element("span", "result ", class_="faint"), text)


def _failure(call: CallFigures) -> Element | None:
    if call.error is None:
        return None
    known = " (no signature)"
    by = None
    if call.signature:
        known, by = " signature ", code(call.signature, 80)
    return element(
        "p",
        element("span", "error ", class_="faint"),
        code(call.error, 241),
        element("span", known, by, class_="faint"),
    )


def _baseline(call: CallFigures) -> Element | None:
    if call.baseline is None or call.baseline == call.effect:
        return None
    by = element("span", " by ", code(call.baseline_rule, 100)) if call.baseline_rule else None
    return element("p", "baseline: ", effect_label(call.baseline), by)


def _gap(calls: int) -> Element | None:
    if calls <= 0:
        return None
    return element("li", f"… {phrases.count(calls, 'call')} left out", class_="gap")


def _end(calls: int) -> Element | None:
    if calls <= 0:
        return None
    return element("p", f"… {phrases.count(calls, 'more call', 'more calls')}", class_="gap")


def _since(at: int | None, start: int | None) -> str:
    if at is None or start is None:
        return ""
    seconds = (at - start) // _SECOND
    minutes, rest = divmod(abs(seconds), 60)
    return f"{'-' if seconds < 0 else '+'}{minutes:,}:{rest:02}"


def _date(at: int) -> str:
    try:
        return datetime.fromtimestamp(at // _SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{at:,} ns since 1970"
