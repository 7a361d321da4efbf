"""The top of the page: would this policy have broken what worked, and how sure is that?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from policyguard.report.replay import phrases
from policyguard.report.replay.figures import Catch, Figures, GateFigures, Harm, Share
from policyguard.report.replay.html.charts import interval, stacked
from policyguard.report.replay.html.components import effect_label, section
from policyguard.report.replay.html.element import Element, code, element


class HarmAssessment(NamedTuple):
    """What the replay says of the runs that succeeded: `kind` is hit, spared or unknown."""

    kind: str
    sentence: str
    confidence: str


def assess_harm(harm: Harm) -> HarmAssessment:
    """Answer the one question that the page begins with."""
    known = harm.succeeded - harm.unknown
    if not known or harm.ci95 is None:
        why = "no session is known to have succeeded (see --labels)"
        if harm.succeeded:
            why = "what it says to the sessions that succeeded hangs on what was not recorded"
        return HarmAssessment(
            "unknown",
            "It cannot be told whether this policy would have broken successful runs.",
            f"The reason: {why}.",
        )
    of = phrases.count(known, "successful session")
    sentence = f"This policy would have refused a call in {harm.refused or 'none'} of {of}."
    if harm.unknown:
        sentence += f" Of {harm.unknown:,} more it is not known."
    low, high = harm.ci95
    share = f"between {low:.1%} and {high:.1%}" if harm.refused else f"at most {high:.1%}"
    return HarmAssessment(
        "hit" if harm.refused else "spared",
        sentence,
        f"How sure is that? At 95 % confidence, {share} of such runs would be hit.",
    )


def summary_section(figures: Figures) -> Element:
    """The verdict, the three shares with their intervals, and what to know before trusting them."""
    judgement = assess_harm(figures.harm)
    banner = element(
        "div",
        element("p", judgement.sentence, class_="sentence"),
        element("p", judgement.confidence),
        class_=f"judgement {judgement.kind}",
    )
    caveats = [element("li", text) for text in phrases.caveats(figures)]
    return section(
        "summary",
        "Summary",
        _interrupted() if figures.partial else None,
        banner,
        element("ul", *map(_gate, figures.gates), class_="gates") if figures.gates else None,
        element("div", *_tiles(figures), class_="tiles"),
        element("h3", "Calls by verdict"),
        *_effects(figures),
        element("h3", "Before you trust these figures") if caveats else None,
        element("ul", *caveats) if caveats else None,
    )


def _harm(told: Harm) -> Share:
    """Harm as a share of the sessions of which it is known."""
    return Share(told.refused, told.succeeded - told.unknown, told.rate, told.ci95)


def _catch(told: Catch) -> Share:
    """Catch as a share of the sessions of which it is known."""
    return Share(told.refused, told.failed - told.unknown, told.rate, told.ci95)


def _interrupted() -> Element:
    text = "Interrupted: this page covers only what was read until then."
    return element("p", text, class_="bad")


def _gate(told: GateFigures) -> Element:
    passed = told.triggered is False
    word = "passed" if passed else "failed"
    why = (
        told.error
        if told.triggered is None
        else ", ".join(f"{path} = {value}" for path, value in told.values.items())
    )
    return element(
        "li",
        element("span", word, class_=f"gate {word}"),
        " --fail-on ",
        code(told.expression, 200),
        " cannot be decided: " if told.triggered is None else " with " if why else None,
        code(why, 240) if why else None,
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
        "sessions with a refused call, whatever came of them",
        figures.refused,
        before.refused if before else None,
        figures.undecided.count,
    )


def _tile(
    title: str, meaning: str, told: Share, before: Share | None, unknown: int, more: str = ""
) -> Element:
    number = "not known" if told.rate is None else f"{told.rate:.1%}"
    return element(
        "div",
        element("h3", title),
        element("p", number, class_="big"),
        element("p", f"{told.count:,} of {told.of:,} {meaning}"),
        element("p", f"of {unknown:,} more it is not known") if unknown else None,
        interval(told.rate, told.ci95),
        _scale(),
        _ends(told),
        _before(before) if before is not None else None,
        element("p", more, class_="faint") if more and told.count else None,
        class_="tile",
    )


def _scale() -> Element:
    ends = (element("span", text) for text in ("0%", "50%", "100%"))
    return element("div", *ends, class_="scale", aria_hidden="true")


def _ends(told: Share) -> Element | None:
    if told.ci95 is None:
        return None
    return element("p", f"95 % interval {told.ci95[0]:.1%} to {told.ci95[1]:.1%}", class_="faint")


def _before(told: Share) -> Element:
    text = f"Before: {phrases.rate(told.rate, told.ci95)}"
    return element("div", interval(told.rate, told.ci95), element("p", text), class_="before")


def _effects(figures: Figures) -> Iterator[Element]:
    effects = figures.effects
    counts = [(name, getattr(effects, name)) for name in effects.__struct_fields__]
    if figures.traces.unknown:
        counts.append(("unknown", figures.traces.unknown))
    yield stacked(counts)
    told = (element("li", effect_label(name), f" {count:,}") for name, count in counts)
    yield element("ul", *told, class_="legend")
