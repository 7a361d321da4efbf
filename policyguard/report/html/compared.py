"""What has changed since the baseline. Its shares stand beside the new ones, in the summary."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.report import phrases
from policyguard.report.figures import Baseline, ChangedCall, Difference
from policyguard.report.html.element import Element, code, element, foreign
from policyguard.report.html.parts import outcome, policy_name, section, session_name, verdict


def compared(baseline: Baseline) -> Element:
    """How many sessions have changed, with examples."""
    return section(
        "compared",
        "Compared with the baseline",
        element("p", "The policy that stood before: ", policy_name(baseline.policy)),
        *_direction("Newly refused", baseline.newly_refused),
        *_direction("Newly allowed", baseline.newly_allowed),
        element("h3", "Refused by both"),
        element("p", _moved(baseline)),
    )


def _direction(title: str, told: Difference) -> Iterator[Element]:
    yield element("h3", title)
    yield element("p", phrases.difference(told) + ".")
    if told.examples:
        yield element(
            "details",
            element(
                "summary", f"Examples: {len(told.examples):,}, those of successful sessions first"
            ),
            element("ul", *map(_example, told.examples), class_="examples"),
            open="" if told.succeeded else None,
        )


def _example(example: ChangedCall) -> Element:
    call = example.call
    args = code(call.args, 241) if call.args is not None else "its arguments were not kept"
    before = verdict(call.baseline) if call.baseline is not None else None
    return element(
        "li",
        element(
            "p",
            session_name(example.session, example.file),
            " ",
            outcome(example.success),
            f", call {example.place + 1:,}: ",
            before,
            " → " if before is not None else None,
            verdict(call.effect),
            element("span", " counterfactual", class_="faint") if call.counterfactual else None,
        ),
        element("p", code(call.tool, 60), " ", args),
        element("p", code(example.rule or "", 100), ": ", foreign(example.message or "", 241)),
    )


def _moved(baseline: Baseline) -> str:
    text = (
        f"{phrases.count(baseline.earlier, 'session')} refused earlier than before, "
        f"{baseline.later:,} later."
    )
    if baseline.unknown:
        text += f" Of {phrases.count(baseline.unknown, 'session')} it is not known."
    return text
