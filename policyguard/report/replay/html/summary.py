"""The summary: whether the policy would have harmed successful runs, and how certain that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policyguard.report.replay import phrases
from policyguard.report.replay.assessment import HarmAssessment, assess_harm, describe_change
from policyguard.report.replay.figures import Catch, Figures, GateFigures, Harm, Share
from policyguard.report.replay.html.charts import interval, stacked
from policyguard.report.replay.html.components import effect_label, entry_link, section
from policyguard.report.replay.html.element import Child, Element, code, element


def summary_section(figures: Figures, entries: Mapping[str, str]) -> Element:
    """Build the section with the assessment, the three shares, and the caveats.

    `entries` are the ids of the policy's entries in the page.
    """
    assessment = assess_harm(figures.harm, figures.rules, figures.labels)
    change = describe_change(figures)
    banner = element(
        "div",
        element("p", *_linked(assessment, entries), class_="sentence"),
        element("p", assessment.confidence),
        element("p", f"{change}.") if change else None,
        class_=f"assessment {assessment.kind}",
    )
    caveats = [element("li", text) for text in phrases.caveats(figures)]
    return section(
        "summary",
        "Summary",
        _interrupted() if figures.partial else None,
        banner,
        element("ul", *map(_gate, figures.gates), class_="gates") if figures.gates else None,
        element("div", *_tiles(figures), class_="tiles"),
        element("h3", "Calls by effect"),
        *_effects(figures),
        element("h3", "Caveats") if caveats else None,
        element("ul", *caveats) if caveats else None,
    )


def _linked(assessment: HarmAssessment, entries: Mapping[str, str]) -> Iterator[Child]:
    """Yield the sentence, its causes linked to the policy."""
    yield assessment.sentence
    separator = ": "
    for id_, number in assessment.main_causes:
        yield f"{separator}{number:,} by "
        yield entry_link(id_, entries)
        separator = ", "
    yield f"{separator}{assessment.other_causes:,} by others." if assessment.other_causes else "."


def _harm(harm: Harm) -> Share:
    """Return harm as a share of the determined sessions."""
    return Share(harm.refused, harm.succeeded - harm.unknown, harm.rate, harm.ci95)


def _catch(catch: Catch) -> Share:
    """Return catch as a share of the determined sessions."""
    return Share(catch.refused, catch.failed - catch.unknown, catch.rate, catch.ci95)


def _interrupted() -> Element:
    text = "Interrupted: this report is incomplete."
    return element("p", text, class_="bad")


def _gate(gate: GateFigures) -> Element:
    passed = gate.triggered is False
    word = "passed" if passed else "failed"
    undecided = gate.triggered is None
    details = gate.error if undecided else phrases.gate_values(gate)
    return element(
        "li",
        element("span", word, class_=f"gate {word}"),
        " --fail-on ",
        code(gate.expression, 200),
        " cannot be decided: " if undecided else " with " if details else None,
        code(details, 240) if details else None,
    )


def _tiles(figures: Figures) -> Iterator[Element]:
    before = figures.baseline
    yield _tile(
        "Harm",
        "successful sessions with a refused call",
        _harm(figures.harm),
        _harm(before.harm) if before else None,
        figures.harm.unknown,
    )
    catch = figures.catch
    cost = f" and cost of {catch.cost_saved:,.2f}" if catch.cost_saved else ""
    yield _tile(
        "Catch",
        "failed sessions with a refused call",
        _catch(catch),
        _catch(before.catch) if before else None,
        catch.unknown,
        f"{phrases.count(catch.calls_saved, 'call')}{cost} came after the first refusal",
    )
    yield _tile(
        "Refused",
        "sessions with a refused call, whatever their outcome",
        figures.refused,
        before.refused if before else None,
        figures.undecided.count,
    )


def _tile(
    title: str, meaning: str, share: Share, before: Share | None, unknown: int, more: str = ""
) -> Element:
    number = "unknown" if share.rate is None else f"{share.rate:.1%}"
    return element(
        "div",
        element("h3", title),
        element("p", number, class_="big"),
        element("p", f"{share.count:,} of {share.of:,} {meaning}"),
        element("p", f"{unknown:,} more undetermined") if unknown else None,
        interval(share.rate, share.ci95),
        _scale(),
        _ends(share),
        _before(before) if before is not None else None,
        element("p", more, class_="faint") if more and share.count else None,
        class_="tile",
    )


def _scale() -> Element:
    ends = (element("span", text) for text in ("0%", "50%", "100%"))
    return element("div", *ends, class_="scale", aria_hidden="true")


def _ends(share: Share) -> Element | None:
    if share.ci95 is None:
        return None
    return element("p", f"95 % interval {share.ci95[0]:.1%} to {share.ci95[1]:.1%}", class_="faint")


def _before(share: Share) -> Element:
    text = f"Before: {phrases.rate(share.rate, share.ci95)}"
    return element("div", interval(share.rate, share.ci95), element("p", text), class_="before")


def _effects(figures: Figures) -> Iterator[Element]:
    effects = figures.effects
    counts = [(name, getattr(effects, name)) for name in effects.__struct_fields__]
    if figures.traces.unknown:
        counts.append(("unknown", figures.traces.unknown))
    yield stacked(counts)
    items = (element("li", effect_label(name), f" {count:,}") for name, count in counts)
    yield element("ul", *items, class_="legend")
