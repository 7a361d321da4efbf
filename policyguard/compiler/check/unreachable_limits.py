"""Limits that nothing can ever reach: the author believes in a guard that is not there."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import Path
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.limits import CycleLimit, LimitLevel, PollingLimit, RepeatLimit
from policyguard.model.policy import Policy


def check_unreachable_limits(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Limits that can never refuse a call, and windows that are larger than the engine's."""
    most = policy.bounds.window_entries
    for level, limits in policy.limits.items():
        path = level_path(level)
        yield from _check_repeat(limits, path, most, merged)
        yield from _check_cycle(limits, path, most, merged)
        if isinstance(limits.polling, PollingLimit) and isinstance(limits.repeat, RepeatLimit):
            message = "`repeat` has no effect here, since `polling` takes its place"
            hint = "write `repeat: none`, or take it out"
            span = merged.span_of((*path, "repeat"), key=True)
            yield merged.diagnostic(
                "reference/shadowed", message, span, hint=hint, severity="warning"
            )


def level_path(level: str) -> Path:
    """Where a level of `Policy.limits` stands: `tools:web_*` under `limits`, `tools`, `web_*`."""
    group, colon, name = level.partition(":")
    return ("limits", group, name) if colon else ("limits", group)


def _check_repeat(
    limits: LimitLevel, path: Path, max_entries: int, merged: MergedPolicy
) -> Iterator[Diagnostic]:
    repeat = limits.repeat
    if not isinstance(repeat, RepeatLimit):
        return
    window = max_entries if repeat.window == "all" else repeat.window
    if window > max_entries:
        message = f"a window of {window:,} is more than `bounds.window_entries`, {max_entries:,}"
        hint = "raise it in `bounds`, or write `window: all`"
        span = merged.span_of((*path, "repeat", "window"))
        yield merged.diagnostic("reference/bounds", message, span, hint=hint)
    if repeat.max > window:
        message = f"{repeat.max:,} same calls never stand in a window of {window:,}"
        hint = f"give a `window` of at least {repeat.max:,}"
        if repeat.max > max_entries:
            hint += ", and raise `bounds.window_entries`"
        span = merged.span_of((*path, "repeat", "max"))
        yield merged.diagnostic("reference/unreachable", message, span, hint=hint)


def _check_cycle(
    limits: LimitLevel, path: Path, max_entries: int, merged: MergedPolicy
) -> Iterator[Diagnostic]:
    cycle = limits.cycle
    if isinstance(cycle, CycleLimit) and cycle.longest * cycle.max > max_entries:
        rounds = f"{cycle.max:,} rounds of {cycle.longest:,} calls"
        message = f"{rounds} are more than `bounds.window_entries`, {max_entries:,}"
        span = merged.span_of((*path, "cycle", "max"))
        yield merged.diagnostic("reference/bounds", message, span, hint="raise it in `bounds`")
