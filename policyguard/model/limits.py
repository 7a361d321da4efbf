"""Limits and budgets of a policy.

Durations are integers in nanoseconds.
"""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from collections.abc import Iterator
from typing import Any, Literal

from policyguard.model.effect import Effect
from policyguard.model.entry import Entry, PolicyStruct, SelectiveEntry

Scope = Literal["batch", "turn", "session", "agent", "user", "project", "global"]
Same = Literal[
    "call", "call_and_result", "call_and_error", "call_and_success", "error", "target", "result"
]
Off = Literal["none"]
"""A limit that is switched off; `None` is a limit that is not mentioned."""


class Per(PolicyStruct, frozen=True, kw_only=True):
    """What a budget is counted per: a scope and, within it, the values of CEL string keys."""

    scope: Scope
    keys: tuple[str, ...] = ()


class Budget(SelectiveEntry, frozen=True, kw_only=True):
    """A total or a rate. Exactly one of `calls` … `distinct` is given, `max` with the last two.

    `distinct` (CEL) gives the values of a call; how many different ones there are is counted.

    `time`, `within` are nanoseconds. `reserve`, `extend` and the `_at` thresholds are in the unit
    of what is counted (nanoseconds for `time`).
    """

    id: str
    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    time: int | None = None
    concurrent: int | None = None
    model_calls: int | None = None
    sum: str | None = None
    distinct: str | None = None
    max: float | None = None
    per: Per
    within: int | None = None
    reserve: float | None = None
    extend: float | None = None
    advise_at: float | None = None
    ask_at: float | None = None
    halt_at: float | None = None
    effect: Effect
    message: str | None = None
    instead: str | None = None


class Limit(Entry, frozen=True, kw_only=True):
    """The keys of all limits. The `_at` thresholds count attempts, `max` admitted calls."""

    per: Literal["turn", "session"]
    effect: Effect
    advise_at: int | None = None
    ask_at: int | None = None
    halt_at: int | None = None
    refuse: Literal["call", "tool"] = "call"
    until: Literal["progress", "success", "turn", "session"] | None = None


class NamedLimit(Limit, frozen=True, kw_only=True):
    """A limit of which a level may have several, and a name for each."""

    id: str | None = None


class RepeatLimit(NamedLimit, frozen=True, kw_only=True):
    """At most `max` same calls among the last `window`; `all` is as many as `bounds` keeps.

    `key` (CEL), if given, defines what *same* means, else `same` does. With `by` each tool has a
    window of its own. With `despite_changes` the calls count on although something was changed in
    between; then none is refused before `without_news` calls in a row have brought nothing new.
    """

    max: int
    window: int | Literal["all"]
    same: Same
    key: str | None = None
    by: Literal["tool"] | None = None
    despite_changes: bool
    without_news: int
    count: Literal["session", "tree"]


class CycleLimit(NamedLimit, frozen=True, kw_only=True):
    """At most `max` rounds of a cycle of `shortest` to `longest` calls."""

    max: int
    longest: int
    shortest: int


class StaleLimit(Limit, frozen=True, kw_only=True):
    """At most `max` calls in a row, each made before with the same result, in `window` calls."""

    max: int
    window: int


class NoProgressLimit(Limit, frozen=True, kw_only=True):
    """At most `max` consecutive results that the tool flags as not advancing."""

    max: int


class FailuresLimit(NamedLimit, frozen=True, kw_only=True):
    """At most `max` consecutive failures: any, those of one signature, or with the same error.

    The same `error` is compared with numbers, paths and times masked, the same `result` as it is.

    They are counted for all calls together, by tool, or (`same: call`) for each call; with `count:
    tree` for an agent and all its sub-agents together. With `despite_changes` a row by tool or call
    goes on although something was changed in between.
    """

    max: int
    same: Literal["error", "result", "call"] | None = None
    by: Literal["tool"] | None = None
    despite_changes: bool
    count: Literal["session", "tree"]
    signature: str | None = None


class RefusalsLimit(Limit, frozen=True, kw_only=True):
    """At most `max` consecutive refused attempts."""

    max: int


class OutageLimit(Limit, frozen=True, kw_only=True):
    """After `max` harness failures `within` a time, refuse for `cooldown`, then admit a probe."""

    max: int
    within: int
    cooldown: int


class PollingLimit(Limit, frozen=True, kw_only=True):
    """Repeating is normal: at least `cooldown` apart, at most `unchanged` equal results."""

    cooldown: int | None = None
    unchanged: int | None = None


class LimitLevel(Entry, frozen=True, kw_only=True):
    """The limits of one level. A kind is None if the level does not mention it.

    Of some kinds there may be several, side by side.
    """

    repeat: RepeatLimit | tuple[RepeatLimit, ...] | Off | None = None
    cycle: CycleLimit | tuple[CycleLimit, ...] | Off | None = None
    stale: StaleLimit | Off | None = None
    no_progress: NoProgressLimit | Off | None = None
    failures: FailuresLimit | tuple[FailuresLimit, ...] | Off | None = None
    refusals: RefusalsLimit | Off | None = None
    outage: OutageLimit | Off | None = None
    polling: PollingLimit | Off | None = None
    timeout: int | Off | None = None


def limits_of(level: LimitLevel, kind: str) -> tuple[Any, ...]:
    """Return the limits of one kind at a level; none where it is off or not mentioned."""
    found = getattr(level, kind)
    if found is None or found == "none":
        return ()
    return found if isinstance(found, tuple) else (found,)


def iter_limits(level: LimitLevel) -> Iterator[tuple[str, int, Limit]]:
    """Yield the limits of a level that are not off: kind, index among those of the kind, limit."""
    for kind in LimitLevel.__struct_fields__:
        if kind == "timeout" or kind in Entry.__struct_fields__:
            continue
        for index, limit in enumerate(limits_of(level, kind)):
            yield kind, index, limit


def limit_id(level: str, kind: str, index: int, limit: Limit) -> str:
    """Return the id of a limit: where it has none of its own, its place among those of its kind."""
    name = limit.id if isinstance(limit, NamedLimit) else None
    own = name or (str(index + 1) if index else "")
    return "/".join(filter(None, ("limits", level, kind, own)))


def limit_kind(id_: str) -> str:
    """Return the kind of a limit with an id; empty for an entry that is no limit."""
    if not id_.startswith("limits/"):
        return ""
    before, last = id_.split("/")[-2:]
    return last if last in LimitLevel.__struct_fields__ else before
