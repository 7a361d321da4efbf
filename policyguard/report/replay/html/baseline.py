"""The changes against the baseline, whose shares are in the summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policyguard.report.replay import phrases
from policyguard.report.replay.figures import BaselineFigures, ChangedCall, DirectionFigures
from policyguard.report.replay.html.components import (
    effect_label,
    entry_link,
    outcome_label,
    policy_name,
    section,
    session_name,
)
from policyguard.report.replay.html.element import Element, code, element, untrusted


def baseline_section(baseline: BaselineFigures, entries: Mapping[str, str]) -> Element:
    """Build the section on changed sessions, with examples. `entries`: the entries' ids here."""
    return section(
        "compared",
        "Compared with the baseline",
        element("p", "Baseline: ", policy_name(baseline.policy)),
        *_direction("Newly refused", baseline.newly_refused, entries),
        *_direction("Newly allowed", baseline.newly_allowed, entries),
        element("h3", "Refused by both"),
        element("p", _moved(baseline)),
    )


def _direction(
    title: str, changes: DirectionFigures, entries: Mapping[str, str]
) -> Iterator[Element]:
    yield element("h3", title)
    yield element("p", phrases.direction(changes) + ".")
    if changes.examples:
        yield element(
            "details",
            element("summary", f"Examples: {len(changes.examples):,}, successful sessions first"),
            element(
                "ul",
                *(_example(example, entries) for example in changes.examples),
                class_="examples",
            ),
            open="" if changes.succeeded else None,
        )


def _example(example: ChangedCall, entries: Mapping[str, str]) -> Element:
    call = example.call
    args = code(call.args, 241) if call.args is not None else "arguments not recorded"
    before = effect_label(call.baseline) if call.baseline is not None else None
    return element(
        "li",
        element(
            "p",
            session_name(example.session, example.file),
            " ",
            outcome_label(example.success),
            f", call {example.index + 1:,}: ",
            before,
            " → " if before is not None else None,
            effect_label(call.effect),
            element("span", " counterfactual", class_="faint") if call.counterfactual else None,
        ),
        element("p", code(call.tool, 60), " ", args),
        element(
            "p",
            entry_link(example.rule or "", entries, 100),
            ": ",
            untrusted(example.message or "", 241),
        ),
    )


def _moved(baseline: BaselineFigures) -> str:
    text = (
        f"{phrases.count(baseline.earlier, 'session')} refused earlier than before, "
        f"{baseline.later:,} later."
    )
    if baseline.unknown:
        text += f" {baseline.unknown:,} undetermined."
    return text
