"""Sentences about a suggestion that its reports share. Plain text, nothing is escaped."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.report.replay import phrases
from policyguard.report.suggest.figures import SettingChange, Suggestion


def percent(share: float) -> str:
    """A share as a reader says it: `1 %`, `0.5 %`."""
    return f"{share * 100:.6g} %"


def guarantee(told: Suggestion) -> str:
    """The sentence that stands, and nothing more."""
    return (
        f"with probability at least {percent(told.confidence)} over the draw of runs like these, "
        f"at most {percent(told.max_harm)} of successful runs would have a call refused"
    )


def guarantee_summary(told: Suggestion) -> Iterator[str]:
    """What is guaranteed of the proposal; where nothing is, why, and what there is instead."""
    held, chosen = told.held_out.succeeded, told.chosen
    if told.guaranteed:
        yield f"guaranteed: {guarantee(told)}"
        return
    if held < told.needed:
        all_of_them = -(-told.needed * 4 // 3)
        yield (
            f"nothing can be promised: at most {percent(told.max_harm)} with a confidence of "
            f"{percent(told.confidence)} takes at least {told.needed:,} successful runs to test "
            f"with, and that none of them is refused a call; here are {held:,}. With "
            f"{all_of_them:,} successful runs in all there would be enough"
        )
    else:
        yield (
            f"nothing can be promised: no candidate passed the test, which {held:,} successful "
            f"runs are enough for. More is refused than {percent(told.max_harm)} allows, or it "
            "cannot be told from that"
        )
    if chosen is None:
        yield "nothing is proposed: each candidate refuses too much in the runs to test with"
        return
    yield (
        f"instead, what was seen: {chosen.held_out.harm.count} of {held} successful runs to test "
        f"with had a call refused. With a confidence of {percent(told.confidence)} that is at "
        f"most {percent(round(chosen.bound, 3))}"
    )


def proposal(told: Suggestion) -> str:
    """What is proposed."""
    chosen = told.chosen
    if chosen is None:
        return "nothing"
    if not chosen.changes:
        return (
            f"{told.policy.name} as it stands: no change that was tried does better in the runs "
            "to test with"
        )
    return changes(chosen.changes)


def changes(made: list[SettingChange]) -> str:
    """What a candidate sets."""
    if not made:
        return "as it stands"
    return "; ".join(f"{one.entry} {_difference(one)}" for one in made)


def setting(values: dict[str, int | str]) -> str:
    """The values of an entry."""
    return ", ".join(f"{key} {value}" for key, value in values.items()) or "none"


def _difference(one: SettingChange) -> str:
    parts = [
        f"{key} {value}" + (f" (was {one.old[key]})" if key in one.old else "")
        for key, value in one.new.items()
        if one.old.get(key) != value
    ]
    return ", ".join(parts)


def runs_used(told: Suggestion) -> str:
    """Which runs it comes from."""
    good, bad = told.explored, told.held_out
    return (
        f"{phrases.count(told.sessions, 'session')}: {good.succeeded + bad.succeeded:,} succeeded, "
        f"{good.failed + bad.failed:,} failed, of {told.unlabelled:,} it is not known. By lot "
        f"(seed {told.seed}), {good.succeeded} and {good.failed} of them were explored with, "
        f"{bad.succeeded} and {bad.failed} held out to test with"
    )


def caveats(told: Suggestion) -> Iterator[str]:
    """What a reader must know before trusting it."""
    yield (
        "it holds for runs drawn as these were: independent of each other, the same agent, the "
        "same kind of work. Runs of one task, or of another model, are not"
    )
    yield (
        "a successful run counts as harmed if any call of it would have been refused; it might "
        "have succeeded nevertheless. In these replays nothing was acted upon, and what an agent "
        "does after a refusal is not known"
    )
    if told.shared:
        yield (
            f"{', '.join(told.shared)} reach beyond a session: these runs are not independent, "
            "and the guarantee does not hold strictly"
        )
    unknown = max((one.held_out.unknown for one in told.candidates), default=0)
    if unknown:
        yield (
            f"of {phrases.count(unknown, 'successful run')} to test with the recording has not "
            "kept what would tell; they count as refused"
        )
    if told.unlabelled:
        yield (
            f"{phrases.count(told.unlabelled, 'session')} without a known outcome had no part in "
            "the choice"
        )
