"""Limits and budgets of a policy: how often, how much, how many at once.

Durations are integers in nanoseconds.
"""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from typing import Literal

from policyguard.model.effect import Effect
from policyguard.model.entry import Entry, PolicyStruct, SelectiveEntry

Scope = Literal["turn", "session", "agent", "user", "project", "global"]
Same = Literal["call", "call_and_result", "call_and_error", "error", "target"]
Off = Literal["none"]
"""What stands in place of a limit that is switched off, where `None` is a limit never mentioned."""


class Per(PolicyStruct, frozen=True, kw_only=True):
    """What a budget is counted for: a scope and, within it, the values of CEL string keys."""

    scope: Scope
    keys: tuple[str, ...] = ()


class Budget(SelectiveEntry, frozen=True, kw_only=True):
    """A total or a rate. Exactly one of `calls` … `sum` is given, `max` with `sum` only.

    `time`, `within` are nanoseconds. `reserve`, `extend` and the `_at` steps are in the unit of
    what is counted (nanoseconds for `time`).
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
    """What the kinds of limits share. The `_at` steps count attempts, `max` admitted calls."""

    per: Literal["turn", "session"]
    effect: Effect
    advise_at: int | None = None
    ask_at: int | None = None
    halt_at: int | None = None
    refuse: Literal["call", "tool"] = "call"
    until: Literal["progress", "turn", "session"] | None = None


class RepeatLimit(Limit, frozen=True, kw_only=True):
    """At most `max` same calls among the last `window`; `all` is as many as `bounds` keeps.

    What *same* means is said by `key` (CEL) where it is given, else by `same`.
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
    """At most `max` results in a row that the tool flags as not advancing."""

    max: int


class FailuresLimit(Limit, frozen=True, kw_only=True):
    """At most `max` failures in a row: any, the same error, or those of one signature."""

    max: int
    same: Literal["error"] | None = None
    signature: str | None = None


class RefusalsLimit(Limit, frozen=True, kw_only=True):
    """At most `max` refused attempts in a row."""

    max: int


class OutageLimit(Limit, frozen=True, kw_only=True):
    """After `max` harness failures `within` a time, rest for `cooldown`, then one trial."""

    max: int
    within: int
    cooldown: int


class PollingLimit(Limit, frozen=True, kw_only=True):
    """Asking again is work: at least `cooldown` apart, `unchanged` equal results in a row."""

    cooldown: int | None = None
    unchanged: int | None = None


class LimitLevel(Entry, frozen=True, kw_only=True):
    """The limits of one level. A kind is None where this level does not mention it."""

    repeat: RepeatLimit | Off | None = None
    cycle: CycleLimit | Off | None = None
    no_progress: NoProgressLimit | Off | None = None
    failures: FailuresLimit | Off | None = None
    refusals: RefusalsLimit | Off | None = None
    outage: OutageLimit | Off | None = None
    polling: PollingLimit | Off | None = None
    timeout: int | Off | None = None
