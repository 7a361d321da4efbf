"""The policy's entries: how often each fired, and in which sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policyguard.report.replay import phrases
from policyguard.report.replay.figures import EvalErrorFigures, Figures, RuleFigures, UnfiredEntry
from policyguard.report.replay.html.charts import interval
from policyguard.report.replay.html.components import Column, effect_label, percent, section, table
from policyguard.report.replay.html.element import Child, Element, code, element

_SHOWN = 100
"""Unfired entries to list."""


def rules_section(figures: Figures) -> Element:
    """Build the section on entries that fired, never fired, or failed to evaluate."""
    before = figures.baseline.rules if figures.baseline is not None else None
    columns = [
        Column("Entry"),
        Column("Effect"),
        Column("Calls", number=True),
        *([Column("Calls before", number=True)] if before is not None else []),
        Column("Sessions", number=True),
        Column("Succeeded", number=True),
        Column("Failed", number=True),
        Column("First to refuse", number=True),
        Column("Share of sessions, 95 % interval"),
    ]
    fired = table("Entries that fired, the most frequent first", columns, _rows(figures, before))
    return section(
        "rules",
        "Entries that fired",
        element("p", "No entry of the policy fired.") if fired is None else fired,
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


def _rows(figures: Figures, before: Sequence[RuleFigures] | None) -> Iterator[Sequence[Child]]:
    was = {_key(rule): rule for rule in before or ()}
    now = {_key(rule) for rule in figures.rules}
    for rule in figures.rules:
        earlier = was.get(_key(rule))
        yield _cells(rule, None if before is None else earlier.hits if earlier else 0)
    for key, rule in was.items():
        if key not in now:
            gone = RuleFigures(rule.id, rule.effect, rate=0.0, observed=rule.observed)
            yield _cells(gone, rule.hits)


def _key(rule: RuleFigures) -> tuple[str, str, bool]:
    return rule.id, rule.effect, rule.observed


def _cells(rule: RuleFigures, before: int | None) -> Sequence[Child]:
    observed = " (observed: refuses nothing)" if rule.observed else None
    return [
        element("span", code(rule.id), observed),
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
