"""Render a replay's figures as Markdown, short enough for a pull-request comment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policyguard.report.escape import for_markdown
from policyguard.report.replay import phrases
from policyguard.report.replay.assessment import assess_harm, sort_rules_by_harm
from policyguard.report.replay.figures import (
    BaselineFigures,
    ChangedCall,
    Figures,
    GateFigures,
    PolicyFigures,
)

MAX_ITEMS = 10
"""Rules, sessions and errors to list."""


def render_markdown(figures: Figures) -> str:
    """Render the figures and changes, with details folded away."""
    return "\n".join(_lines(figures)) + "\n"


def _lines(figures: Figures) -> Iterator[str]:
    baseline = figures.baseline
    against = f", compared with {_policy(baseline.policy)}" if baseline is not None else ""
    yield f"### policyguard simulate: {_policy(figures.policy)}{against}"
    yield ""
    if figures.partial:
        yield "**Interrupted: this report is incomplete.**"
        yield ""
    if figures.labels.unmatched and not figures.labels.matched:
        yield f"**{phrases.unmatched_labels(figures.labels)}**"
        yield ""
    for gate in figures.gates:
        yield f"- {_gate(gate)}"
    if figures.gates:
        yield ""
    if baseline is not None:
        yield (
            f"- **newly refused**: {phrases.direction(baseline.newly_refused)}\n"
            f"- **newly allowed**: {phrases.direction(baseline.newly_allowed)}\n"
            f"- refused earlier in {baseline.earlier}, later in {baseline.later} of the sessions"
        )
        if baseline.unknown:
            yield f"- undetermined for {phrases.count(baseline.unknown, 'session')}"
        yield ""
    yield f"{_assessment(figures)}\n"
    yield from _figures(figures)
    absent = phrases.absent_tools(figures, MAX_ITEMS // 2)
    if absent:
        yield from (*(f"- {_code(sentence, 160)}" for sentence in absent), "")
    if baseline is not None:
        yield from _details("Newly refused", _changed(baseline.newly_refused.examples))
        yield from _details("Newly allowed", _changed(baseline.newly_allowed.examples))
    else:
        yield from _details("Refused", _refused(figures))
    yield from _details("Entries that fired", _rules(figures))
    yield from _details("Input and caveats", _read(figures))


def _assessment(figures: Figures) -> str:
    found = assess_harm(figures.harm, figures.rules, figures.labels)
    causes = [f"{number:,} by {_code(id_, 60)}" for id_, number in found.main_causes]
    if found.other_causes:
        causes.append(f"{found.other_causes:,} by others")
    named = f": {', '.join(causes)}" if causes else ""
    return f"**{found.sentence}**{named}. {found.confidence}"


def _figures(figures: Figures) -> Iterator[str]:
    rows: list[tuple[PolicyFigures, Figures | BaselineFigures]] = [(figures.policy, figures)]
    if figures.baseline is not None:
        rows.append((figures.baseline.policy, figures.baseline))
    yield "| policy | sessions refused | harm: of successful ones | catch: of failed ones |"
    yield "|---|---|---|---|"
    for policy, row in rows:
        harm, catch = row.harm, row.catch
        refused = f"{row.refused.count:,} of {row.refused.of:,}"
        yield (
            f"| {_policy(policy)} "
            f"| {refused}: {phrases.rate(row.refused.rate, row.refused.ci95)} "
            f"| {harm.refused} of {harm.succeeded}: {phrases.rate(harm.rate, harm.ci95)} "
            f"| {catch.refused} of {catch.failed}: {phrases.rate(catch.rate, catch.ci95)} |"
        )
    yield ""


def _changed(examples: Iterable[ChangedCall]) -> Iterator[str]:
    for example in examples:
        call = example.call
        args = "arguments not recorded" if call.args is None else _code(call.args, 100)
        marker = ", counterfactual" if call.counterfactual else ""
        yield (
            f"- {_session(example.session, example.file, example.success)}, "
            f"call {example.index + 1}{marker}: {_code(call.tool, 40)} {args}"
            f"<br>{_code(example.rule or '', 60)}: {_code(example.message or '', 160)}"
        )


def _refused(figures: Figures) -> Iterator[str]:
    refused = phrases.sort_by_harm(figures.sessions)
    for run in refused[:MAX_ITEMS]:
        yield (
            f"- {_session(run.id, run.file, run.success)}, "
            f"call {(run.first_refusal or 0) + 1} of {run.calls}: {_code(run.first_tool or '', 40)}"
            f"<br>{_code(run.first_rule or '', 60)}: {_code(run.first_message or '', 160)}"
        )
    left = figures.refused.count - len(refused[:MAX_ITEMS])
    if left > 0:
        yield f"- … and {phrases.count(left, 'more session', 'more sessions')}"


def _rules(figures: Figures) -> Iterator[str]:
    rules = sort_rules_by_harm(figures.rules)
    if rules:
        yield "| by | effect | harmed | calls | sessions | share of sessions |"
        yield "|---|---|---|---|---|---|"
    for rule in rules[:MAX_ITEMS]:
        observed = " (observed)" if rule.observed else ""
        yield (
            f"| {_code(rule.id, 60)}{observed} | {rule.effect} | {rule.first_succeeded:,} "
            f"| {rule.hits:,} "
            f"| {rule.sessions:,} | {phrases.rate(rule.rate, rule.ci95)} |"
        )
    if len(rules) > MAX_ITEMS:
        yield ""
        yield f"… and {len(rules) - MAX_ITEMS} more"
    if quiet := phrases.never_fired(figures, MAX_ITEMS):
        yield ""
        yield _code(quiet, 1000)


def _read(figures: Figures) -> Iterator[str]:
    traces, coverage = figures.traces, figures.signatures
    yield (
        f"- {phrases.count(traces.files, 'file')}, {phrases.sessions(traces)}, "
        f"{phrases.count(traces.calls, 'call')}"
    )
    for caveat in phrases.caveats(figures):
        yield f"- {caveat}"
    if coverage.matched.of:
        yield f"- errors matched by a signature: {phrases.share(coverage.matched)}"
    for kind in coverage.unmatched[:3]:
        yield f"- {kind.hits:,} unmatched errors: {_code(kind.error, 100)}"
    yield "- everything after the first refusal of a session is counterfactual"


def _details(title: str, lines: Iterator[str]) -> Iterator[str]:
    """Yield a folded section, or nothing if it has no lines."""
    body = list(lines)
    if body:
        yield from (f"<details><summary>{title}</summary>", "", *body, "", "</details>", "")


def _gate(gate: GateFigures) -> str:
    mark = "passed" if gate.triggered is False else "**failed**"
    reason = gate.error if gate.triggered is None else phrases.gate_values(gate)
    code = _code(gate.expression, 160)
    return f"{mark}: {code}" + (f" — {_code(reason, 200)}" if reason else "")


def _policy(policy: PolicyFigures) -> str:
    return f"{_code(policy.name, 40)} ({policy.digest[:12]})"


def _session(id_: str, file: str, success: bool | None) -> str:
    return _code(phrases.session_name(id_, file), 80) + phrases.outcome(success)


def _code(text: str, max_length: int) -> str:
    return f"<code>{for_markdown(text, max_length)}</code>"
