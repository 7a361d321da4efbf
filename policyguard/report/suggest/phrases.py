"""Phrases that the suggestion reports share. The text is not escaped."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.report.replay import phrases
from policyguard.report.suggest.figures import SettingChange, Suggestion


def percent(share: float) -> str:
    """Format a share as `1 %` or `0.5 %`."""
    return f"{share * 100:.6g} %"


def guarantee(suggestion: Suggestion) -> str:
    """Return the exact statement of the guarantee."""
    return (
        f"with probability at least {percent(suggestion.confidence)} over the draw of runs like "
        f"these, at most {percent(suggestion.max_harm)} of successful runs would have a call "
        "refused"
    )


def guarantee_summary(suggestion: Suggestion) -> Iterator[str]:
    """Yield the guarantee, or why there is none and what was observed."""
    held_out, chosen = suggestion.held_out.succeeded, suggestion.chosen
    confidence, max_harm = percent(suggestion.confidence), percent(suggestion.max_harm)
    if suggestion.guaranteed:
        yield f"guaranteed: {guarantee(suggestion)}"
        return
    if held_out < suggestion.needed:
        sufficient = -(-suggestion.needed * 4 // 3)
        yield (
            f"no guarantee: at most {max_harm} with a confidence of {confidence} takes at least "
            f"{suggestion.needed:,} held-out successful runs, none of them with a refused call; "
            f"there are {held_out:,}. {sufficient:,} successful runs in total would be enough"
        )
    else:
        yield (
            f"no guarantee: no candidate passed the test, although {held_out:,} held-out "
            f"successful runs are enough for it. Each either refuses more than {max_harm}, or the "
            "runs cannot rule that out"
        )
    if chosen is None:
        yield "no proposal: each candidate refuses too many of the held-out runs"
        return
    yield (
        f"observed instead: {chosen.held_out.harm.count} of {held_out} held-out successful runs "
        f"had a call refused. With a confidence of {confidence} that is at most "
        f"{percent(round(chosen.bound, 3))}"
    )


def proposal(suggestion: Suggestion) -> str:
    """Format the proposal."""
    chosen = suggestion.chosen
    if chosen is None:
        return "nothing"
    if not chosen.changes:
        return f"{suggestion.policy.name} unchanged: no candidate did better on the held-out runs"
    return changes(chosen.changes)


def changes(settings: list[SettingChange]) -> str:
    """Format the settings of a candidate."""
    if not settings:
        return "unchanged"
    return "; ".join(f"{change.entry} {_changed_values(change)}" for change in settings)


def setting(values: dict[str, int | str]) -> str:
    """Format the values of an entry."""
    return ", ".join(f"{key} {value}" for key, value in values.items()) or "none"


def _changed_values(change: SettingChange) -> str:
    parts = [
        f"{key} {value}" + (f" (was {change.old[key]})" if key in change.old else "")
        for key, value in change.new.items()
        if change.old.get(key) != value
    ]
    return ", ".join(parts)


def runs_used(suggestion: Suggestion) -> str:
    """Format the numbers of runs by outcome and group."""
    explored, held_out = suggestion.explored, suggestion.held_out
    return (
        f"{phrases.count(suggestion.sessions, 'session')}: "
        f"{explored.succeeded + held_out.succeeded:,} succeeded, "
        f"{explored.failed + held_out.failed:,} failed, {suggestion.unlabelled:,} unknown. A "
        f"random split (seed {suggestion.seed}) explored with {explored.succeeded} and "
        f"{explored.failed} of them, and held out {held_out.succeeded} and {held_out.failed} for "
        "the test"
    )


def caveats(suggestion: Suggestion) -> Iterator[str]:
    """Yield what a reader must know before trusting the suggestion."""
    yield (
        "it holds for runs drawn like these: independent, of the same agent and the same kind of "
        "work. Runs of one task, or with another model, are not"
    )
    yield (
        "a successful run counts as harmed if any of its calls would have been refused; it might "
        "have succeeded anyway. These replays only observe: how an agent reacts to a refusal is "
        "unknown"
    )
    if suggestion.shared:
        yield (
            f"{', '.join(suggestion.shared)} span sessions, so these runs are not independent and "
            "the guarantee does not hold strictly"
        )
    unknown = max((one.held_out.unknown for one in suggestion.candidates), default=0)
    if unknown:
        yield (
            f"{phrases.count(unknown, 'held-out successful run')} undetermined, because the "
            "recording lacks the necessary data; they count as refused"
        )
    if suggestion.unlabelled:
        yield (
            f"{phrases.count(suggestion.unlabelled, 'session')} without a known outcome did not "
            "affect the choice"
        )
