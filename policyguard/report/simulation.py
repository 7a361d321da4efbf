"""A replay's figures as text for a person, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from policyguard.report.escape import for_terminal
from policyguard.report.figures import Catch, Figures, Harm, RunFigures

SHOWN = 12
"""Refused sessions, and skipped places, that the text report lists one by one."""


def render_json(figures: Figures) -> str:
    """One JSON object (`schemas/report.schema.json`)."""
    return msgspec.json.format(msgspec.json.encode(figures), indent=2).decode()


def render_text(figures: Figures) -> str:
    """The report that `policyguard simulate` prints."""
    return "\n".join(_lines(figures))


def _lines(figures: Figures) -> Iterator[str]:
    traces = figures.traces
    policy = figures.policy
    yield f"policy {policy.name} ({policy.digest[:12]}), replayed in mode {policy.mode}"
    formats = ", ".join(f"{name} {count}" for name, count in sorted(traces.formats.items()))
    yield (
        f"read   {_count(traces.files, 'file')}{f' ({formats})' if formats else ''}: "
        f"{_count(traces.sessions, 'session')}, {_count(traces.calls, 'call')}"
    )
    errors = traces.errors
    yield (
        f"       failures: {errors.explicit} recorded as such, {errors.inferred} inferred from "
        f"text; {_count(errors.unknown, 'result')} of which nothing tells"
    )
    if traces.untimed:
        yield f"       {_count(traces.untimed, 'call')} without a time: time rules were not asked"
    if figures.interrupted:
        yield "       INTERRUPTED: this report covers only what was read until then"
    yield ""
    yield "what the policy says"
    yield "  " + "   ".join(f"{name} {count}" for name, count in figures.effects.items())
    yield from _rules(figures)
    yield from _refused(figures)
    untouched = sum(1 for run in figures.sessions if run.calls and not run.refused)
    yield ""
    yield f"untouched: {untouched} of {_count(traces.sessions, 'session')}"
    yield from _untouched(figures)
    yield from _outcomes(figures)
    if traces.skips:
        yield ""
        yield f"skipped: {traces.skipped}"
        for skip in traces.skips[:SHOWN]:
            place = f"{skip.file}:{skip.line}" if skip.line else skip.file
            yield f"  {for_terminal(place)}: {for_terminal(skip.reason, 160)}"
        if len(traces.skips) > SHOWN:
            yield f"  … and {len(traces.skips) - SHOWN} more (all of them in --format json)"


def _rules(figures: Figures) -> Iterator[str]:
    if not figures.rules:
        return
    width = max(len(rule.id) for rule in figures.rules)
    yield ""
    yield f"  {'by':<{width}}  {'effect':<7} {'hits':>6} {'sessions':>9}"
    for rule in figures.rules:
        yield f"  {rule.id:<{width}}  {rule.effect:<7} {rule.hits:>6} {rule.sessions:>9}"
    for fault in figures.faults:
        yield f"  {fault.id}: {fault.hits} times undecided: {for_terminal(fault.error, 100)}"


def _refused(figures: Figures) -> Iterator[str]:
    refused = [run for run in figures.sessions if run.refused]
    if not refused:
        return
    yield ""
    yield "refused (what follows a first refusal is counterfactual: the agent would have gone on"
    yield "differently)"
    # A refusal in a run that succeeded is what a reader must see first.
    refused.sort(key=lambda run: (run.success is not True, run.file, run.id))
    for run in refused[:SHOWN]:
        yield f"  {_name(run)}{_outcome(run.success)}"
        yield (
            f"    call {(run.first_refusal or 0) + 1} of {run.calls}, "
            f"`{for_terminal(run.first_tool or '', 60)}`: "
            f"{for_terminal(run.first_message or '', 120)}"
        )
        yield f"    by {run.first_rule}; {_count(run.refused, 'call')} refused in all"
    if len(refused) > SHOWN:
        yield f"  … and {len(refused) - SHOWN} more sessions (all of them in --format json)"


def _untouched(figures: Figures) -> Iterator[str]:
    runs = [run for run in figures.sessions if run.calls and not run.refused]
    if len(runs) > SHOWN:
        return
    for run in runs:
        yield f"  {_name(run)}{_outcome(run.success)}, {_count(run.calls, 'call')}"


def _outcomes(figures: Figures) -> Iterator[str]:
    labels = figures.labels
    yield ""
    if figures.harm.rate is None and figures.catch.rate is None:
        yield "harm and catch: unknown, for no session has a known outcome (see --labels)"
    else:
        unknown = sum(1 for run in figures.sessions if run.calls and run.success is None)
        yield _harm(figures.harm)
        yield _catch(figures.catch)
        if unknown:
            yield f"       {_count(unknown, 'session')} without a known outcome count in neither"
    if labels.matched or labels.unmatched:
        yield (
            f"labels {labels.matched} matched, {labels.unmatched} matched no session, "
            f"{labels.disagree} against the recording's own outcome"
        )


def _harm(harm: Harm) -> str:
    if harm.rate is None:
        return "harm   unknown: no session is known to have succeeded"
    return (
        f"harm   {harm.refused} of {harm.succeeded} successful sessions had a call refused: "
        f"{_share(harm.rate, harm.ci95)}"
    )


def _catch(catch: Catch) -> str:
    if catch.rate is None:
        return "catch  unknown: no session is known to have failed"
    cost = f" and cost of {catch.cost_saved:.2f}" if catch.cost_saved else ""
    return (
        f"catch  {catch.refused} of {catch.failed} failed sessions had a call refused: "
        f"{_share(catch.rate, catch.ci95)}; {_count(catch.calls_saved, 'call')}{cost} came after"
    )


def _share(rate: float, interval: tuple[float, float] | None) -> str:
    text = f"{rate:.1%}"
    return f"{text} (95 % interval {interval[0]:.1%} to {interval[1]:.1%})" if interval else text


def _name(run: RunFigures) -> str:
    name = Path(run.file).name
    both = run.id if run.id in name or name in run.id else f"{run.id} in {name}"
    return for_terminal(both, 90)


def _outcome(success: bool | None) -> str:
    if success is None:
        return ""
    return " (succeeded)" if success else " (failed)"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
