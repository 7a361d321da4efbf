"""The sessions that the report lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from policyguard.report.replay import phrases
from policyguard.report.replay.figures import Figures, RunFigures
from policyguard.report.replay.html.components import (
    Column,
    entry_link,
    left_out,
    outcome_label,
    section,
    session_name,
    table,
)
from policyguard.report.replay.html.element import Child, Element, code, element, untrusted

_CHANGES = {
    "newly_refused": "newly refused",
    "newly_allowed": "newly allowed",
    "same": "as before",
    "unknown": "undetermined",
}


def sessions_section(
    figures: Figures, anchors: Mapping[int, str], entries: Mapping[str, str]
) -> Element:
    """Build the section.

    `anchors` are the ids of the sessions' timelines, `entries` those of the policy's entries.
    """
    runs = list(enumerate(figures.sessions))
    harmed = [index for index, run in runs if run.refused and run.success]
    caught = [index for index, run in runs if run.refused and not run.success]
    unknown = [run for _, run in runs if not run.refused and run.unknown]
    untouched = [run for _, run in runs if not run.refused and not run.unknown]
    changed = figures.baseline is not None
    return section(
        "sessions",
        "Sessions",
        element("p", _summary(figures)),
        _refused("although they succeeded", figures, harmed, anchors, entries, fold=False),
        _refused("and failed, or of unknown outcome", figures, caught, anchors, entries, fold=True),
        _others("Undetermined", unknown, changed=changed),
        _others("No call refused", untouched, changed=changed),
        left_out(figures.left_out, "session", "--sessions lists more; all are counted"),
    )


def _summary(figures: Figures) -> str:
    listed = len(figures.sessions)
    return (
        f"With a refused call: {phrases.share(figures.refused)}. Listed here: {listed:,} of "
        f"{phrases.count(listed + figures.left_out, 'session')}."
    )


def _refused(
    label: str,
    figures: Figures,
    indexes: Sequence[int],
    anchors: Mapping[int, str],
    entries: Mapping[str, str],
    *,
    fold: bool,
) -> Element | None:
    changed = figures.baseline is not None
    columns = [
        Column("Session"),
        Column("Why"),
        Column("Outcome"),
        Column("First refused call", number=True),
        Column("Tool"),
        Column("Calls refused", number=True),
        *([Column("Compared")] if changed else []),
    ]
    rows = (
        _cells(figures.sessions[index], anchors.get(index), entries, changed) for index in indexes
    )
    caption = f"Refused {label}: {phrases.count(len(indexes), 'session')}"
    return table(caption, columns, rows, fold=fold)


def _cells(
    run: RunFigures, anchor: str | None, entries: Mapping[str, str], changed: bool
) -> Sequence[Child]:
    name = session_name(run.id, run.file)
    message = untrusted(run.first_message or "", 160)
    return [
        element("a", name, href=f"#{anchor}") if anchor else name,
        element("span", entry_link(run.first_rule or "", entries), " ", message, class_="why"),
        outcome_label(run.success),
        f"{(run.first_refusal or 0) + 1:,} of {run.calls:,}",
        code(run.first_tool or "", 40),
        f"{run.refused:,}",
        *([_change(run)] if changed else []),
    ]


def _others(label: str, runs: Sequence[RunFigures], *, changed: bool) -> Element | None:
    columns = [
        Column("Session"),
        Column("Outcome"),
        Column("Calls", number=True),
        Column("Advised", number=True),
        Column("Unknown", number=True),
        *([Column("Compared")] if changed else []),
    ]
    caption = f"{label}: {phrases.count(len(runs), 'session')}"
    return table(caption, columns, _plain_rows(runs, changed=changed), fold=True)


def _plain_rows(runs: Sequence[RunFigures], *, changed: bool) -> Iterator[Sequence[Child]]:
    for run in runs:
        yield [
            session_name(run.id, run.file),
            outcome_label(run.success),
            f"{run.calls:,}",
            f"{run.advised:,}",
            f"{run.unknown:,}",
            *([_change(run)] if changed else []),
        ]


def _change(run: RunFigures) -> str:
    change = run.baseline.change if run.baseline is not None else "unknown"
    return _CHANGES.get(change, change)
