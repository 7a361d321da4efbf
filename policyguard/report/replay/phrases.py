"""Sentences about a replay that its reports for people share. Plain text, nothing is escaped."""

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
    """A number of things."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def sessions(told: TraceFigures) -> str:
    """How many sessions were read."""
    return count(told.sessions, "session") + without_calls(told)


def without_calls(told: TraceFigures) -> str:
    """In brackets, those that no share is of; nothing where there are none."""
    return f" ({told.without_calls:,} without a call)" if told.without_calls else ""


def labels(told: LabelFigures) -> str:
    """What came of the labels."""
    return (
        f"{told.matched:,} matched, {told.unmatched:,} matched no session, "
        f"{told.disagree:,} against the recording's own outcome"
    )


def unmatched_labels(told: LabelFigures) -> str:
    """Labels that nothing has: as a rule they are another recording's."""
    of = told.matched + told.unmatched
    if told.matched:
        return f"{told.unmatched:,} of {count(of, 'label')} matched no session"
    return f"no session has any of the {count(of, 'label')}: are they those of these runs?"


def rate(share: float | None, interval: Interval | None) -> str:
    """A share with its interval."""
    if share is None:
        return "unknown"
    text = f"{share:.1%}"
    if interval is None:
        return text
    return f"{text} (95 % interval {interval[0]:.1%} to {interval[1]:.1%})"


def share(told: Share) -> str:
    """So many of so many, and the share."""
    if told.rate is None:
        return f"{told.count:,} of {told.of:,}"
    return f"{told.count:,} of {told.of:,}: {rate(told.rate, told.ci95)}"


def policy(told: PolicyFigures) -> str:
    """Which policy it is."""
    return f"{told.name} ({told.digest[:12]})"


def harm(told: Harm) -> str:
    """What it does to runs that succeeded."""
    if not told.succeeded:
        return "unknown: no session is known to have succeeded"
    text = f"{told.refused} of {told.succeeded} successful sessions had a call refused"
    text += f": {rate(told.rate, told.ci95)}"
    return text + (f"; of {told.unknown} it is not known" if told.unknown else "")


def catch(told: Catch) -> str:
    """What it does to runs that failed."""
    if not told.failed:
        return "unknown: no session is known to have failed"
    text = f"{told.refused} of {told.failed} failed sessions had a call refused"
    text += f": {rate(told.rate, told.ci95)}"
    if told.unknown:
        text += f"; of {told.unknown} it is not known"
    cost = f" and cost of {told.cost_saved:.2f}" if told.cost_saved else ""
    return f"{text}; {count(told.calls_saved, 'call')}{cost} came after"


def direction(told: DirectionFigures) -> str:
    """What has changed in one direction."""
    text = f"{count(told.sessions.count, 'session')} of {told.sessions.of:,}"
    if told.sessions.count:
        known = [f"{told.succeeded} succeeded", f"{told.failed} failed"]
        text += f" ({', '.join(known)}): {rate(told.sessions.rate, told.sessions.ci95)}"
    return f"{text}; {count(told.calls, 'call')}"


def gate(told: GateFigures) -> str:
    """What came of a `--fail-on`."""
    values = ", ".join(f"{path} = {value}" for path, value in told.values.items())
    if told.triggered is None:
        return f"cannot be decided, which counts as held: {told.error}"
    return f"{'held' if told.triggered else 'did not hold'}{f': {values}' if values else ''}"


def absent_tools(figures: Figures, max_entries: int) -> list[str]:
    """Own entries whose tools no call has, each in a sentence; beyond `most`, how many more."""
    found = (
        [entry for entry in figures.unfired if entry.absent_tools] if figures.traces.calls else []
    )
    told = [
        f"{entry.id}: no call of {_names(entry.absent_tools)} in these runs"
        for entry in found[:max_entries]
    ]
    if len(found) > max_entries:
        told.append(
            f"{count(len(found) - max_entries, 'more entry', 'more entries')} of tools without a call"
        )
    return told


def never_fired(figures: Figures, max_entries: int) -> str:
    """The other own entries that had nothing to say, in one sentence; empty for none."""
    found = [entry.id for entry in figures.unfired if not entry.absent_tools]
    if not found or not figures.traces.calls:
        return ""
    more = f" and {len(found) - max_entries:,} more" if len(found) > max_entries else ""
    return f"had nothing to say: {', '.join(found[:max_entries])}{more}"


def _names(tools: list[str]) -> str:
    more = f" and {len(tools) - 3:,} more" if len(tools) > 3 else ""
    return ", ".join(tools[:3]) + more


def caveats(figures: Figures) -> Iterator[str]:
    """What a reader must know before trusting the figures."""
    traces = figures.traces
    if figures.partial:
        yield (
            f"PARTIAL: interrupted after {count(traces.events, 'event')}, in {traces.files} of "
            f"{count(traces.named_files, 'file')}; sessions that were open are cut off there"
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
        yield f"{count(traces.errors.unknown, 'result')} of which nothing tells whether they failed"
    if traces.untimed:
        yield f"{count(traces.untimed, 'call')} without a time: time rules were not asked"
    if traces.orphans:
        yield (
            f"{count(traces.orphans, 'sub-agent')} without a parent at work in these files: "
            "the parent's budgets do not count such calls"
        )
    if traces.redacted.args or traces.redacted.results:
        yield (
            f"{count(traces.redacted.args, 'call')} without arguments and "
            f"{count(traces.redacted.results, 'result')} without text, not kept in the recording: "
            "which of them are the same is taken as its fingerprints say, where it has any"
        )
    if traces.unknown:
        yield (
            f"{count(traces.unknown, 'call')} whose answer is unknown, for it depends on what the "
            f"recording does not have; sessions that this leaves open: {share(figures.undecided)}"
        )
    if traces.skipped:
        yield f"{count(traces.skipped, 'place')} skipped"


def session_name(session: str, file: str) -> str:
    """A session's name, with its file's where that says more."""
    stem = PurePath(file).name
    return session if session in stem or stem in session else f"{session} in {stem}"


def outcome(success: bool | None) -> str:
    """What came of a session, in brackets."""
    return {True: " (succeeded)", False: " (failed)", None: ""}[success]


def sort_by_harm(runs: list[RunFigures]) -> list[RunFigures]:
    """The refused sessions: those that had succeeded are what a reader must see first."""
    refused = [run for run in runs if run.refused]
    return sorted(refused, key=lambda run: (run.success is not True, run.file, run.id))
