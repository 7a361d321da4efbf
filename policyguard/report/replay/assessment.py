"""The main result of a replay in sentences: what the policy would have refused, and by which entry.

The texts are not escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

from policyguard.report.replay import phrases
from policyguard.report.replay.figures import Figures, Harm, LabelFigures, RuleFigures

_MAX_CAUSES = 4
"""Entries that a sentence names."""


class HarmAssessment(NamedTuple):
    """The assessment of successful runs: `kind` is hit, spared or unknown.

    `causes` are the entries that refused a call first in these runs, with their numbers of runs.
    """

    kind: str
    sentence: str
    causes: list[tuple[str, int]]
    confidence: str

    @property
    def text(self) -> str:
        """The sentence with its causes."""
        return f"{self.sentence}{_causes_text(self.causes)}."

    @property
    def main_causes(self) -> list[tuple[str, int]]:
        """The causes to name."""
        return self.causes[:_MAX_CAUSES]

    @property
    def other_causes(self) -> int:
        """The number of runs with another cause."""
        return sum(number for _, number in self.causes[_MAX_CAUSES:])


def assess_harm(
    harm: Harm, rules: list[RuleFigures], labels: LabelFigures | None = None
) -> HarmAssessment:
    """Assess whether the policy would have harmed successful runs."""
    known = harm.succeeded - harm.unknown
    if not known or harm.ci95 is None:
        reason = f"No session is known to have succeeded: {_why_unknown(labels)}."
        if harm.succeeded:
            reason = "The recording lacks the data to decide this for the successful sessions."
        sentence = "It is unknown whether this policy would have harmed successful runs"
        return HarmAssessment("unknown", sentence, [], reason)
    of = phrases.count(known, "successful session")
    sentence = f"This policy would have refused a call in {harm.refused or 'none'} of {of}"
    low, high = harm.ci95
    share = f"between {low:.1%} and {high:.1%}" if harm.refused else f"at most {high:.1%}"
    confidence = f"With 95 % confidence, {share} of such runs would have a call refused."
    if harm.unknown:
        confidence = f"{harm.unknown:,} more are undetermined. {confidence}"
    causes = _count_causes((rule.id, rule.first_succeeded) for rule in rules)
    return HarmAssessment("hit" if harm.refused else "spared", sentence, causes, confidence)


def _why_unknown(labels: LabelFigures | None) -> str:
    """Say why no session is known to have succeeded."""
    if labels is None or not (labels.matched or labels.unmatched):
        return "pass --labels to say which did"
    if not labels.matched:
        return phrases.unmatched_labels(labels)
    matched = phrases.count(labels.matched, "label")
    return f"{matched} matched; none says that its session succeeded"


def describe_refusals(figures: Figures) -> str:
    """Say in how many sessions a call was refused, whatever their outcome, and by what."""
    refused = figures.refused
    causes = _count_causes((rule.id, rule.first) for rule in figures.rules)
    of = phrases.count(refused.of, "session")
    text = f"a call in {refused.count:,} of {of}{_causes_text(causes)}"
    if not refused.count:
        text = f"no call in {f'any of {of}' if refused.of > 1 else of}"
    undecided = phrases.count(figures.undecided.count, "more session", "more sessions")
    return f"{text}; {undecided} undetermined" if figures.undecided.count else text


def describe_change(figures: Figures) -> str | None:
    """Say how many successful runs are refused that the baseline allows, and vice versa."""
    baseline = figures.baseline
    if baseline is None or baseline.harm.rate is None:
        return None
    refused = phrases.count(baseline.newly_refused.succeeded, "successful session")
    return (
        f"{refused} newly refused, {baseline.newly_allowed.succeeded or 'none'} newly allowed; "
        f"the baseline would have refused a call in {baseline.harm.refused or 'none'}"
    )


def next_step(figures: Figures) -> str | None:
    """Say how to see and prevent the refusals in successful runs; None without any."""
    if assess_harm(figures.harm, figures.rules, figures.labels).kind != "hit":
        return None
    text = "see the refused calls with `--format html -o report.html`"
    rule = sort_rules_by_harm(figures.rules)[0]
    where = f" ({rule.file}:{rule.line})" if rule.file else ""
    return f"{text}; then loosen `{rule.id}`{where}, or disable it"


def sort_rules_by_harm(rules: list[RuleFigures]) -> list[RuleFigures]:
    """Return the entries that harmed most successful runs first, then the most frequent."""
    return sorted(rules, key=lambda rule: (-rule.first_succeeded, -rule.hits))


def _count_causes(sessions: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Add up sessions by entry, which may have several effects. The most frequent come first."""
    counts: Counter[str] = Counter()
    for id_, number in sessions:
        counts[id_] += number
    return sorted(filter(itemgetter(1), counts.items()), key=lambda cause: (-cause[1], cause[0]))


def _causes_text(causes: list[tuple[str, int]]) -> str:
    if not causes:
        return ""
    named = [f"{number:,} by {id_}" for id_, number in causes[:_MAX_CAUSES]]
    if more := sum(number for _, number in causes[_MAX_CAUSES:]):
        named.append(f"{more:,} by others")
    return f": {', '.join(named)}"
