"""Report limits that no sequence of calls can reach."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import level_path
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import Path
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.limits import CycleLimit, LimitLevel, PollingLimit, RepeatLimit
from policyguard.model.policy import Policy


def check_unreachable_limits(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report limits that never refuse a call, and windows beyond `bounds.window_entries`."""
    max_entries = policy.bounds.window_entries
    for level, limits in policy.limits.items():
        path = level_path(level)
        yield from _check_repeat(limits, path, max_entries, merged)
        yield from _check_cycle(limits, path, max_entries, merged)
        if isinstance(limits.polling, PollingLimit) and isinstance(limits.repeat, RepeatLimit):
            message = "`repeat` has no effect here, because `polling` replaces it"
            hint = "write `repeat: none`, or remove it"
            yield merged.diagnostic(
                "reference/shadowed",
                message,
                (*path, "repeat"),
                key=True,
                hint=hint,
                severity="warning",
            )


def _check_repeat(
    limits: LimitLevel, path: Path, max_entries: int, merged: MergedPolicy
) -> Iterator[Diagnostic]:
    repeat = limits.repeat
    if not isinstance(repeat, RepeatLimit):
        return
    window = max_entries if repeat.window == "all" else repeat.window
    if window > max_entries:
        message = f"a window of {window:,} exceeds `bounds.window_entries`, {max_entries:,}"
        hint = "raise the bound, or write `window: all`"
        yield merged.diagnostic("reference/bounds", message, (*path, "repeat", "window"), hint=hint)
    if repeat.max > window:
        message = f"`max` exceeds the window of {window:,} calls, so the limit never fires"
        hint = f"raise `window` to at least {repeat.max:,}, or lower `max`"
        if repeat.max > max_entries:
            hint += "; a larger window also needs a larger `bounds.window_entries`"
        yield merged.diagnostic(
            "reference/unreachable", message, (*path, "repeat", "max"), hint=hint
        )


def _check_cycle(
    limits: LimitLevel, path: Path, max_entries: int, merged: MergedPolicy
) -> Iterator[Diagnostic]:
    cycle = limits.cycle
    if isinstance(cycle, CycleLimit) and cycle.longest * cycle.max > max_entries:
        rounds = f"{cycle.max:,} rounds of {cycle.longest:,} calls"
        message = f"{rounds} exceed `bounds.window_entries`, {max_entries:,}"
        yield merged.diagnostic(
            "reference/bounds",
            message,
            (*path, "cycle", "max"),
            hint="raise the bound, or lower `max`",
        )
