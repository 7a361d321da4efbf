"""Limits that nothing can ever reach: the author believes in a guard that is not there."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.layers import Layered
from policyguard.engines.yaml_tree import Path
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.limits import CycleLimit, LimitLevel, PollingLimit, RepeatLimit
from policyguard.model.policy import Policy


def check_reach(policy: Policy, layered: Layered) -> Iterator[Diagnostic]:
    """Limits that can never refuse a call, and windows that are larger than the engine's."""
    most = policy.bounds.window_entries
    for level, limits in policy.limits.items():
        path = level_path(level)
        yield from _repeat(limits, path, most, layered)
        yield from _cycle(limits, path, most, layered)
        if isinstance(limits.polling, PollingLimit) and isinstance(limits.repeat, RepeatLimit):
            message = "`repeat` has no effect here, since `polling` takes its place"
            hint = "write `repeat: none`, or take it out"
            span = layered.where((*path, "repeat"), key=True)
            yield layered.diagnostic(
                "reference/shadowed", message, span, hint=hint, severity="warning"
            )


def level_path(level: str) -> Path:
    """Where a level of `Policy.limits` stands: `tools:web_*` under `limits`, `tools`, `web_*`."""
    group, colon, name = level.partition(":")
    return ("limits", group, name) if colon else ("limits", group)


def _repeat(limits: LimitLevel, path: Path, most: int, layered: Layered) -> Iterator[Diagnostic]:
    repeat = limits.repeat
    if not isinstance(repeat, RepeatLimit):
        return
    window = most if repeat.window == "all" else repeat.window
    if window > most:
        message = f"a window of {window:,} is more than `bounds.window_entries`, {most:,}"
        hint = "raise it in `bounds`, or write `window: all`"
        span = layered.where((*path, "repeat", "window"))
        yield layered.diagnostic("reference/bounds", message, span, hint=hint)
    if repeat.max > window:
        message = f"{repeat.max:,} same calls never stand in a window of {window:,}"
        hint = f"give a `window` of at least {repeat.max:,}"
        if repeat.max > most:
            hint += ", and raise `bounds.window_entries`"
        span = layered.where((*path, "repeat", "max"))
        yield layered.diagnostic("reference/unreachable", message, span, hint=hint)


def _cycle(limits: LimitLevel, path: Path, most: int, layered: Layered) -> Iterator[Diagnostic]:
    cycle = limits.cycle
    if isinstance(cycle, CycleLimit) and cycle.longest * cycle.max > most:
        rounds = f"{cycle.max:,} rounds of {cycle.longest:,} calls"
        message = f"{rounds} are more than `bounds.window_entries`, {most:,}"
        span = layered.where((*path, "cycle", "max"))
        yield layered.diagnostic("reference/bounds", message, span, hint="raise it in `bounds`")
