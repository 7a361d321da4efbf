"""Render a suggestion as text, YAML and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

import msgspec

from policyguard.report.escape import for_json, for_terminal
from policyguard.report.replay import phrases
from policyguard.report.style import PLAIN, Style
from policyguard.report.suggest import phrases as say
from policyguard.report.suggest.figures import CandidateFigures, Suggestion, SweepPoint

_COMMENT_WIDTH = 80
_ENTRY = 60


def render_json(suggestion: Suggestion) -> str:
    """Render the suggestion as a JSON object."""
    return for_json(msgspec.json.format(msgspec.json.encode(suggestion), indent=2).decode())


def render_yaml(suggestion: Suggestion) -> str:
    """Render the overrides, if any, with the guarantee as comments."""
    lines = [
        "# Proposed by `policyguard suggest`.",
        *_commented(say.runs_used(suggestion)),
        *(line for sentence in say.guarantee_summary(suggestion) for line in _commented(sentence)),
    ]
    return "\n".join(lines) + "\n" + suggestion.yaml


def render_signatures(suggestion: Suggestion) -> str:
    """Render the signatures as a separate layer, with instructions."""
    text = (
        "Signatures for unmatched errors. Set their `blame` yourself. As a layer they change which "
        "errors count as the same: check the effect with `policyguard simulate --baseline`"
    )
    return "\n".join(_commented(text)) + "\n" + suggestion.signatures_yaml


def render_text(suggestion: Suggestion, style: Style = PLAIN) -> str:
    """Render the report that `policyguard suggest` prints.

    The layers at its end keep their lines, however narrow the terminal, so that one can copy them.
    """
    return "\n".join([style.join(_lines(suggestion, style)), *_layers(suggestion, style)])


def _lines(suggestion: Suggestion, style: Style) -> Iterator[str]:
    yield style.strong(f"policy {for_terminal(phrases.policy(suggestion.policy))}")
    yield f"  {for_terminal(say.runs_used(suggestion))}"
    yield ""
    yield style.strong("proposed")
    yield f"  {for_terminal(say.proposal(suggestion))}"
    for sentence in say.guarantee_summary(suggestion):
        text = for_terminal(sentence)
        yield f"  {text if suggestion.guaranteed else style.warning(text)}"
    yield ""
    yield from _candidates(suggestion, style)
    yield from _curve(suggestion, style)
    yield from _sweep(suggestion)
    yield from _errors(suggestion)
    yield ""
    yield "caveats"
    for caveat in say.caveats(suggestion):
        yield f"  - {for_terminal(caveat)}"


def _layers(suggestion: Suggestion, style: Style) -> Iterator[str]:
    if suggestion.chosen is not None and suggestion.chosen.changes:
        yield from ("", style.strong("overrides, as a layer"), "", suggestion.yaml.rstrip())
    if suggestion.signatures_yaml:
        yield from ("", style.strong("signatures, as a second layer"), "")
        yield render_signatures(suggestion).rstrip()


def _candidates(suggestion: Suggestion, style: Style) -> Iterator[str]:
    yield "candidates in test order, on the held-out runs"
    bounded = "" if suggestion.guaranteed else f"{'at most':<9} "
    yield f"  {'catch':<33} {'harm':<13} {bounded}p"
    for one in suggestion.candidates:
        harm, catch = one.held_out.harm, one.held_out.catch
        caught = f"{style.bar(catch.rate or 0.0)} {f'{catch.count} of {catch.of}':<12}"
        bound = "" if suggestion.guaranteed else f"{one.bound:<9.1%} "
        line = f"{caught} {f'{harm.count} of {harm.of}':<13} {bound}{one.p_value:.3f}"
        yield f"{'*' if one.chosen else ' '} {line}  {_passed(one)}"
        yield f"      {for_terminal(say.changes(one.changes))}"
    bounds = f"; at most: for all at once, with {say.percent(suggestion.confidence)} confidence"
    yield f"  * proposed{'' if suggestion.guaranteed else bounds}"


def _passed(one: CandidateFigures) -> str:
    return "passed" if one.certified else "not proven"


def _curve(suggestion: Suggestion, style: Style) -> Iterator[str]:
    if not suggestion.curve:
        return
    yield ""
    yield "harm against catch, on the exploration runs (biased in favour of both)"
    marked = False
    for point in suggestion.curve:
        harm = point.harm.rate or 0.0
        if not marked and harm > suggestion.max_harm:
            marked = True
            yield f"  {'-' * 20} more than {say.percent(suggestion.max_harm)} {'-' * 20}"
        caught = f"{style.bar(point.catch.rate or 0.0)} {f'{point.catch.count} caught':<12}"
        text = style.faint(for_terminal(say.changes(point.changes), 110))
        line = f"  {f'{point.harm.count} harmed ({harm:.1%})':<20} {caught}"
        yield from (line, f"      {text}") if style.narrow else (f"{line} {text}",)


def _sweep(suggestion: Suggestion) -> Iterator[str]:
    if not suggestion.sweep:
        return
    yield ""
    yield "each setting alone, on the same runs: harmed/caught; [current]"
    for entry in dict.fromkeys(point.entry for point in suggestion.sweep):
        yield f"  {for_terminal(entry, _ENTRY)}"
        points = _distinct_points([point for point in suggestion.sweep if point.entry == entry])
        shown = [f"{say.setting(one.setting)}: {one.harm}/{one.catch}" for one in points]
        marked = [
            f"[{text}]" if one.is_current else text for text, one in zip(shown, points, strict=True)
        ]
        yield f"    {for_terminal(' · '.join(marked))}"


def _distinct_points(points: list[SweepPoint]) -> list[SweepPoint]:
    """Return one point per threshold and outcome, sorted by threshold."""
    found: dict[tuple[object, int, int], SweepPoint] = {}
    for point in points:
        threshold = next(iter(point.setting.values()), 0)
        found.setdefault((threshold, point.harm, point.catch), point)
    return sorted(found.values(), key=lambda point: (bool(point.setting), _threshold(point)))


def _threshold(point: SweepPoint) -> int:
    return next((value for value in point.setting.values() if isinstance(value, int)), 0)


def _errors(suggestion: Suggestion) -> Iterator[str]:
    errors = suggestion.errors
    if not errors.known and not errors.unknown:
        return
    yield ""
    yield (
        f"errors: {errors.known:,} matched by a signature, {errors.unknown:,} unmatched; "
        f"{phrases.count(len(suggestion.signatures), 'signature')} proposed"
    )
    for one in suggestion.signatures:
        example = for_terminal(one.examples[0], 80)
        yield f"  {one.hits:>6}  {for_terminal(one.id, _ENTRY)}: {example}"
    for group in errors.unproposed:
        kinds = phrases.count(group.clusters, "kind")
        yield f"  {group.errors:>6}  ({kinds}) not proposed: {group.why}"


def _commented(text: str) -> list[str]:
    lines = wrap(
        for_terminal(text),
        _COMMENT_WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_on_hyphens=False,
    )
    return [for_terminal(line) for line in lines]  # a line break may expose a command
