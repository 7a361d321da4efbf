"""A suggestion as text for a person at a terminal, as YAML and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

import msgspec

from policyguard.report.escape import for_json, for_terminal
from policyguard.report.replay import phrases
from policyguard.report.style import PLAIN, Style
from policyguard.report.suggest import phrases as say
from policyguard.report.suggest.figures import CandidateFigures, Suggestion, SweepPoint

_WIDTH = 96
_ENTRY = 60


def render_json(told: Suggestion) -> str:
    """One JSON object with all that was found."""
    return for_json(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())


def render_yaml(told: Suggestion) -> str:
    """The overrides, with what is promised of them as comments; comments alone where none is."""
    lines = [
        "# Proposed by `policyguard suggest`.",
        *_commented(say.runs_used(told)),
        *(line for sentence in say.guarantee_summary(told) for line in _commented(sentence)),
    ]
    return "\n".join(lines) + "\n" + told.yaml


def render_signatures(told: Suggestion) -> str:
    """The signatures as a layer of their own, with what is to be done about them."""
    text = (
        "errors that no signature knew. Whose fault they are is for a person to say. Laid over a "
        "policy they change which errors are the same: see what that does with `policyguard "
        "simulate --baseline`"
    )
    return "\n".join(_commented(text)) + "\n" + told.signatures_yaml


def render_text(told: Suggestion, style: Style = PLAIN) -> str:
    """The report that `policyguard suggest` prints."""
    return "\n".join(_lines(told, style))


def _lines(told: Suggestion, style: Style) -> Iterator[str]:
    yield style.strong(f"policy {for_terminal(phrases.policy(told.policy))}")
    yield from _indented(say.runs_used(told))
    yield ""
    yield style.strong("proposed")
    yield from _indented(say.proposal(told))
    for sentence in say.guarantee_summary(told):
        yield from (
            line if told.guaranteed else style.warning(line) for line in _indented(sentence)
        )
    yield ""
    yield from _candidates(told, style)
    yield from _curve(told, style)
    yield from _sweep(told)
    yield from _errors(told)
    yield ""
    yield "to be known"
    for caveat in say.caveats(told):
        first, *rest = _wrapped(f"- {caveat}", "    ")
        yield from (first.removeprefix("  "), *rest)
    if told.chosen is not None and told.chosen.changes:
        yield from ("", style.strong("overrides, as a layer"), "", told.yaml.rstrip())
    if told.signatures_yaml:
        yield from ("", style.strong("signatures, as another"), "")
        yield render_signatures(told).rstrip()


def _candidates(told: Suggestion, style: Style) -> Iterator[str]:
    yield "candidates in the order of their tests, over the runs to test with"
    bounded = "" if told.guaranteed else f"{'at most':<9} "
    yield f"  {'catch':<33} {'harm':<13} {bounded}p"
    for one in told.candidates:
        harm, catch = one.held_out.harm, one.held_out.catch
        caught = f"{style.bar(catch.rate or 0.0)} {f'{catch.count} of {catch.of}':<12}"
        bound = "" if told.guaranteed else f"{one.bound:<9.1%} "
        line = f"{caught} {f'{harm.count} of {harm.of}':<13} {bound}{one.p_value:.3f}"
        yield f"{'*' if one.chosen else ' '} {line}  {_passed(one)}"
        yield from _wrapped(say.changes(one.changes), "      ")
    bounds = f"; at most: with a confidence of {say.percent(told.confidence)}, for all at once"
    yield f"  * proposed{'' if told.guaranteed else bounds}"


def _passed(one: CandidateFigures) -> str:
    return "passed" if one.certified else "not shown"


def _curve(told: Suggestion, style: Style) -> Iterator[str]:
    if not told.curve:
        return
    yield ""
    yield "harm against catch, over the runs explored with (which flatters both)"
    marked = False
    for point in told.curve:
        harm = point.harm.rate or 0.0
        if not marked and harm > told.max_harm:
            marked = True
            yield f"  {'-' * 20} more than {say.percent(told.max_harm)} {'-' * 20}"
        caught = f"{style.bar(point.catch.rate or 0.0)} {f'{point.catch.count} caught':<12}"
        text = for_terminal(say.changes(point.changes), 110)
        yield f"  {f'{point.harm.count} harmed ({harm:.1%})':<20} {caught} {style.faint(text)}"


def _sweep(told: Suggestion) -> Iterator[str]:
    if not told.sweep:
        return
    yield ""
    yield "each setting by itself, over the same runs: harmed/caught; [as it stands]"
    for entry in dict.fromkeys(point.entry for point in told.sweep):
        yield f"  {for_terminal(entry, _ENTRY)}"
        points = _telling([point for point in told.sweep if point.entry == entry])
        shown = [f"{say.setting(one.setting)}: {one.harm}/{one.catch}" for one in points]
        marked = [
            f"[{text}]" if one.is_current else text for text, one in zip(shown, points, strict=True)
        ]
        yield from _wrapped(" · ".join(marked), "    ")


def _telling(points: list[SweepPoint]) -> list[SweepPoint]:
    """One setting for each threshold and outcome, by threshold: most windows make no difference."""
    found: dict[tuple[object, int, int], SweepPoint] = {}
    for point in points:
        threshold = next(iter(point.setting.values()), 0)
        found.setdefault((threshold, point.harm, point.catch), point)
    return sorted(found.values(), key=lambda point: (bool(point.setting), _threshold(point)))


def _threshold(point: SweepPoint) -> int:
    return next((value for value in point.setting.values() if isinstance(value, int)), 0)


def _errors(told: Suggestion) -> Iterator[str]:
    errors = told.errors
    if not errors.known and not errors.unknown:
        return
    yield ""
    yield (
        f"errors: {errors.known:,} known by a signature, {errors.unknown:,} by none; "
        f"{phrases.count(len(told.signatures), 'signature')} proposed"
    )
    for one in told.signatures:
        example = for_terminal(one.examples[0], 80)
        yield f"  {one.hits:>6}  {for_terminal(one.id, _ENTRY)}: {example}"
    for left in errors.unproposed:
        clusters = phrases.count(left.clusters, "kind")
        yield f"  {left.errors:>6}  ({clusters}) not proposed: {left.why}"


def _indented(text: str) -> list[str]:
    return _wrapped(text, "  ")


def _commented(text: str) -> list[str]:
    return _wrapped(text, "# ")


def _wrapped(text: str, indent: str) -> list[str]:
    lines = wrap(
        for_terminal(text),
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return [for_terminal(line) for line in lines]  # a line may begin anywhere in the text
