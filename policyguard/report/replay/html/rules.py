"""The policy's entries: how often each fired, and in which sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from policyguard.report.replay import phrases
from policyguard.report.replay.assessment import sort_rules_by_harm
from policyguard.report.replay.figures import EvalErrorFigures, Figures, RuleFigures, UnfiredEntry
from policyguard.report.replay.html.charts import interval
from policyguard.report.replay.html.components import (
    Column,
    effect_label,
    entry_link,
    percent,
    section,
    table,
)
from policyguard.report.replay.html.element import Child, Element, code, element

_HARMED = "Harmed: the successful sessions in which the entry was the first to refuse a call."
_SHOWN = 100
"""Unfired entries to list."""


def rules_section(figures: Figures, anchors: Mapping[str, str]) -> Element:
    """Build the section on entries that fired, never fired, or failed to evaluate.

    `anchors` are the ids in the page of the entries' sources.
    """
    before = figures.baseline.rules if figures.baseline is not None else None
    columns = [
        Column("Entry"),
        Column("Harmed", number=True),
        Column("Effect"),
        Column("Calls", number=True),
        *([Column("Calls before", number=True)] if before is not None else []),
        Column("Sessions", number=True),
        Column("Succeeded", number=True),
        Column("Failed", number=True),
        Column("First to refuse", number=True),
        Column("Share of sessions, 95 % interval"),
    ]
    rows = _rows(figures, before, anchors)
    fired = table("Entries that fired, the most harmful first", columns, rows)
    return section(
        "rules",
        "Entries that fired",
        element("p", "No entry of the policy fired.") if fired is None else fired,
        None if fired is None else element("p", _HARMED, class_="faint"),
        _sources(figures, anchors),
        _unfired(figures.unfired) if figures.traces.calls else None,
        _eval_errors(figures.eval_errors),
    )


def _unfired(entries: Sequence[UnfiredEntry]) -> Element | None:
    rows = (
        (
            code(entry.id),
            ", ".join(entry.absent_tools)[:400] or "–",
            code(f"{entry.file}:{entry.line}", 160),
        )
        for entry in sorted(entries, key=lambda entry: not entry.absent_tools)[:_SHOWN]
    )
    columns = [Column("Entry"), Column("Tools without a call"), Column("Place")]
    caption = f"Own entries that never fired: {len(entries):,}"
    return table(caption, columns, rows, fold=True)


def _rows(
    figures: Figures, before: Sequence[RuleFigures] | None, anchors: Mapping[str, str]
) -> Iterator[Sequence[Child]]:
    was = {_key(rule): rule for rule in before or ()}
    now = {_key(rule) for rule in figures.rules}
    for rule in sort_rules_by_harm(figures.rules):
        earlier = was.get(_key(rule))
        yield _cells(rule, None if before is None else earlier.hits if earlier else 0, anchors)
    for key, rule in was.items():
        if key not in now:
            gone = RuleFigures(rule.id, rule.effect, rate=0.0, observed=rule.observed)
            yield _cells(gone, rule.hits, anchors)


def _sources(figures: Figures, anchors: Mapping[str, str]) -> Element | None:
    """Build the first lines of each entry, which its name in the page links to."""
    before = figures.baseline.rules if figures.baseline is not None else []
    rules = {rule.id: rule for rule in (*before, *figures.rules)}
    if not rules:
        return None
    made = (_source(rules[id_], anchor) for id_, anchor in anchors.items())
    return element("div", element("h3", "Where they are written"), *made)


def _source(rule: RuleFigures, anchor: str) -> Element:
    place = f"{rule.file}:{rule.line}" if rule.file else "not in the policy's files"
    lines = [element("span", line, class_="line") for line in rule.source]
    return element(
        "details",
        element("summary", code(rule.id, 120), " ", code(place, 160)),
        # A link to an inner element opens its <details>.
        element("div", element("pre", *lines) if lines else None, id=anchor),
        class_="source",
    )


def _key(rule: RuleFigures) -> tuple[str, str, bool]:
    return rule.id, rule.effect, rule.observed


def _cells(rule: RuleFigures, before: int | None, anchors: Mapping[str, str]) -> Sequence[Child]:
    observed = " (observed: refuses nothing)" if rule.observed else None
    return [
        element("span", entry_link(rule.id, anchors, 120), observed),
        element(
            "span", f"{rule.first_succeeded:,}", class_="bad" if rule.first_succeeded else None
        ),
        effect_label(rule.effect),
        f"{rule.hits:,}",
        *([f"{before:,}"] if before is not None else []),
        f"{rule.sessions:,}",
        f"{rule.succeeded:,}",
        f"{rule.failed:,}",
        f"{rule.first:,}",
        element(
            "span", interval(rule.rate, rule.ci95), percent(rule.rate, rule.ci95), class_="share"
        ),
    ]


def _eval_errors(errors: Sequence[EvalErrorFigures]) -> Element | None:
    if not errors:
        return None
    items = (
        element(
            "li", code(error.id), f": {phrases.count(error.hits, 'time')}: ", code(error.error, 240)
        )
        for error in errors
    )
    return element(
        "div", element("h3", "Expressions that failed to evaluate"), element("ul", *items)
    )
