"""Limits and budgets of a policy.

Durations are integers in nanoseconds.
"""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from typing import Literal

from policyguard.model.effect import Effect
from policyguard.model.entry import Entry, PolicyStruct, SelectiveEntry

Scope = Literal["turn", "session", "agent", "user", "project", "global"]
Same = Literal["call", "call_and_result", "call_and_error", "error", "target"]
Off = Literal["none"]
"""A limit that is switched off; `None` is a limit that is not mentioned."""


class Per(PolicyStruct, frozen=True, kw_only=True):
    """What a budget is counted per: a scope and, within it, the values of CEL string keys."""

    scope: Scope
    keys: tuple[str, ...] = ()


class Budget(SelectiveEntry, frozen=True, kw_only=True):
    """A total or a rate. Exactly one of `calls` … `sum` is given, `max` with `sum` only.

    `time`, `within` are nanoseconds. `reserve`, `extend` and the `_at` thresholds are in the unit
    of what is counted (nanoseconds for `time`).
    """

    id: str
    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    time: int | None = None
    concurrent: int | None = None
    sum: str | None = None
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
    until: Literal["progress", "turn", "session"] | None = None


class RepeatLimit(Limit, frozen=True, kw_only=True):
    """At most `max` same calls among the last `window`; `all` is as many as `bounds` keeps.

    `key` (CEL), if given, defines what *same* means, else `same` does.
    """

    max: int
    window: int | Literal["all"]
    same: Same
    key: str | None = None


class CycleLimit(Limit, frozen=True, kw_only=True):
    """At most `max` rounds of a cycle of 2 to `longest` calls."""

    max: int
    longest: int


class NoProgressLimit(Limit, frozen=True, kw_only=True):
    """At most `max` consecutive results that the tool flags as not advancing."""

    max: int


class FailuresLimit(Limit, frozen=True, kw_only=True):
    """At most `max` consecutive failures: any, the same error, or those of one signature."""

    max: int
    same: Literal["error"] | None = None
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
    """The limits of one level. A kind is None if the level does not mention it."""

    repeat: RepeatLimit | Off | None = None
    cycle: CycleLimit | Off | None = None
    no_progress: NoProgressLimit | Off | None = None
    failures: FailuresLimit | Off | None = None
    refusals: RefusalsLimit | Off | None = None
    outage: OutageLimit | Off | None = None
    polling: PollingLimit | Off | None = None
    timeout: int | Off | None = None
