"""Phrases that the replay reports for people share. The text is not escaped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from policyguard.report.replay.figures import (
    Catch,
    DirectionFigures,
    Figures,
    GateFigures,
    Harm,
    Interval,
    LabelFigures,
    PolicyFigures,
    RunFigures,
    Share,
    TraceFigures,
)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Format a number of things, such as `1 call` or `2,000 calls`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def sessions(traces: TraceFigures) -> str:
    """Format the number of sessions."""
    return count(traces.sessions, "session") + without_calls(traces)


def without_calls(traces: TraceFigures) -> str:
    """Format the number of sessions without calls in parentheses; empty for none."""
    return f" ({traces.without_calls:,} without a call)" if traces.without_calls else ""


def labels(figures: LabelFigures) -> str:
    """Format how many labels matched a session."""
    return (
        f"{figures.matched:,} matched, {figures.unmatched:,} matched no session, "
        f"{label_conflicts(figures)}"
    )


def label_conflicts(figures: LabelFigures) -> str:
    """Format how many labels contradict the recorded outcome."""
    return f"{figures.disagree:,} contradicted the recording"


def unmatched_labels(figures: LabelFigures) -> str:
    """Format how many labels matched no session."""
    total = count(figures.matched + figures.unmatched, "label")
    if figures.matched:
        return f"{figures.unmatched:,} of {total} matched no session"
    return f"none of the {total} matched a session; check that they belong to these runs"


def rate(share: float | None, interval: Interval | None) -> str:
    """Format a share with its interval."""
    if share is None:
        return "unknown"
    text = f"{share:.1%}"
    if interval is None:
        return text
    return f"{text} (95 % interval {interval[0]:.1%} to {interval[1]:.1%})"


def short_rate(share: float | None, interval: Interval | None) -> str:
    """Format a share with its interval in little room."""
    if share is None or interval is None:
        return rate(share, interval)
    return f"{share:.1%} ({interval[0]:.1%}–{interval[1]:.1%})"


def share(part: Share) -> str:
    """Format a share as `1 of 2: 50.0% (…)`."""
    text = f"{part.count:,} of {part.of:,}"
    return text if part.rate is None else f"{text}: {rate(part.rate, part.ci95)}"


def policy(figures: PolicyFigures) -> str:
    """Format a policy's name and digest."""
    return f"{figures.name} ({figures.digest[:12]})"


def harm(figures: Harm) -> str:
    """Format the share of successful sessions with a refused call."""
    if not figures.succeeded:
        return "unknown: no session is known to have succeeded"
    text = f"{figures.refused} of {figures.succeeded} successful sessions had a call refused"
    text += f": {rate(figures.rate, figures.ci95)}"
    return text + (f"; {figures.unknown} undetermined" if figures.unknown else "")


def catch(figures: Catch) -> str:
    """Format the share of failed sessions with a refused call."""
    if not figures.failed:
        return "unknown: no session is known to have failed"
    text = f"{figures.refused} of {figures.failed} failed sessions had a call refused"
    text += f": {rate(figures.rate, figures.ci95)}"
    if figures.unknown:
        text += f"; {figures.unknown} undetermined"
    cost = f" and cost of {figures.cost_saved:.2f}" if figures.cost_saved else ""
    return f"{text}; {count(figures.calls_saved, 'call')}{cost} came after"


def direction(figures: DirectionFigures) -> str:
    """Format how many sessions and calls changed in one direction."""
    text = f"{count(figures.sessions.count, 'session')} of {figures.sessions.of:,}"
    if figures.sessions.count:
        text += (
            f" ({figures.succeeded} succeeded, {figures.failed} failed)"
            f": {rate(figures.sessions.rate, figures.sessions.ci95)}"
        )
    return f"{text}; {count(figures.calls, 'call')}"


def gate(figures: GateFigures) -> str:
    """Format the result of a `--fail-on` condition."""
    if figures.triggered is None:
        return f"FAILED: cannot be decided: {figures.error}"
    word = "FAILED" if figures.triggered else "passed"
    values = gate_values(figures)
    return f"{word}: {values}" if values else word


def gate_values(figures: GateFigures) -> str:
    """Format the values that a `--fail-on` condition read."""
    return ", ".join(f"{path} = {value}" for path, value in figures.values.items())


def absent_tools(figures: Figures, max_entries: int) -> list[str]:
    """Return a phrase for each own entry whose tools are never called, and one for the rest."""
    if not figures.traces.calls:
        return []
    found = [entry for entry in figures.unfired if entry.absent_tools]
    phrases = [
        f"{entry.id}: no call of {_tool_names(entry.absent_tools)} in these runs"
        for entry in found[:max_entries]
    ]
    if more := len(found) - len(phrases):
        phrases.append(f"{count(more, 'more entry', 'more entries')} for tools without a call")
    return phrases


def never_fired(figures: Figures, max_entries: int) -> str:
    """Format the other own entries that never fired; empty for none."""
    found = [entry.id for entry in figures.unfired if not entry.absent_tools]
    if not found or not figures.traces.calls:
        return ""
    more = f" and {len(found) - max_entries:,} more" if len(found) > max_entries else ""
    return f"never fired: {', '.join(found[:max_entries])}{more}"


def _tool_names(tools: list[str]) -> str:
    more = f" and {len(tools) - 3:,} more" if len(tools) > 3 else ""
    return ", ".join(tools[:3]) + more


def sample(traces: TraceFigures) -> str:
    """Describe a sample: how it was drawn, and what its figures are of."""
    drawn = sum(stratum.drawn for stratum in traces.strata)
    total = sum(stratum.sessions for stratum in traces.strata)
    strata = count(len(traces.strata), "stratum", "strata")
    return (
        f"a sample of {traces.sample:.4g} of the sessions, {drawn:,} of {total:,} (each with its "
        f"sub-agents), in {strata} by agent and outcome: counts are those of the sample, rates "
        "and their intervals are estimated for all"
    )


def caveats(figures: Figures, *, skips: str = "") -> Iterator[str]:
    """Yield what a reader must know before trusting the figures. `skips`: where these are named."""
    traces = figures.traces
    if traces.sample is not None:
        yield sample(traces)
    if figures.partial:
        yield (
            f"PARTIAL: interrupted after {count(traces.events, 'event')} in {traces.files} of "
            f"{count(traces.named_files, 'file')}; open sessions are cut off"
        )
    if traces.unlabelled.count:
        yield (
            f"sessions without a known outcome: {share(traces.unlabelled)}; they count in neither "
            "harm nor catch"
        )
    if figures.labels.unmatched:
        yield unmatched_labels(figures.labels)
    if traces.errors.inferred:
        yield f"{count(traces.errors.inferred, 'failure')} inferred from text, not recorded as such"
    if traces.errors.unknown:
        yield f"{count(traces.errors.unknown, 'result')} with unknown status"
    if traces.untimed:
        yield f"{count(traces.untimed, 'call')} without a time: time rules were not evaluated"
    if traces.orphans:
        yield (
            f"{count(traces.orphans, 'sub-agent')} without a parent running in these files: calls "
            "that no parent's budget counts"
        )
    if traces.candidates:
        kinds = ", ".join(f"{calls} {kind}" for kind, calls in sorted(traces.candidates.items()))
        yield f"calls on which candidate policies differed when recorded: {kinds}"
    if traces.redacted.args or traces.redacted.results:
        yield (
            f"{count(traces.redacted.args, 'call')} without arguments and "
            f"{count(traces.redacted.results, 'result')} without text in the recording, compared "
            "by fingerprint if they have one"
        )
    if traces.unknown:
        yield (
            f"{count(traces.unknown, 'call')} undetermined, because the recording lacks the "
            f"necessary data; undetermined sessions: {share(figures.undecided)}"
        )
    if traces.skipped:
        yield f"{count(traces.skipped, 'place')} skipped{skips}"


def session_name(session: str, file: str) -> str:
    """Format a session's id, with its file's name if that adds something."""
    stem = PurePath(file).name
    return session if session in stem or stem in session else f"{session} in {stem}"


def outcome(success: bool | None) -> str:
    """Format a session's outcome in parentheses; empty if unknown."""
    return {True: " (succeeded)", False: " (failed)", None: ""}[success]


def sort_by_harm(runs: list[RunFigures]) -> list[RunFigures]:
    """Return the refused sessions, successful ones first."""
    refused = [run for run in runs if run.refused]
    return sorted(refused, key=lambda run: (run.success is not True, run.file, run.id))
