"""Build the limits of a checked policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from policyguard.compiler.build.entry_paths import limit_path
from policyguard.compiler.build.expressions import Expressions
from policyguard.evaluator.activation import Expression
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.cycle import CycleChecker
from policyguard.evaluator.limits.escalation import Escalation
from policyguard.evaluator.limits.failures import FailuresChecker
from policyguard.evaluator.limits.no_progress import NoProgressChecker
from policyguard.evaluator.limits.outage import OutageChecker
from policyguard.evaluator.limits.polling import UNBOUNDED, PollingChecker
from policyguard.evaluator.limits.refusals import RefusalsChecker
from policyguard.evaluator.limits.repeat import RepeatByToolChecker, RepeatChecker
from policyguard.evaluator.limits.stale import SameResultChecker, StaleChecker, UnchangedChecker
from policyguard.model.entry import Entry
from policyguard.model.limits import Budget as BudgetEntry
from policyguard.model.limits import Limit as AnyLimit
from policyguard.model.limits import LimitLevel, RefusalsLimit, RepeatLimit, limit_id, limits_of
from policyguard.model.policy import Policy

LIMIT_KINDS = ("stale", "repeat", "cycle", "no_progress", "failures", "outage", "polling")
"""In the order of evaluation. `stale` and `repeat` come first: what brings nothing new ends no row
of failures."""


class LimitBuilder:
    """Builds the limits of a policy's levels. State keeps the `digest` of values, never them."""

    def __init__(
        self, policy: Policy, expressions: Expressions, digest: Callable[[str], str]
    ) -> None:
        self._policy = policy
        self._expressions = expressions
        self._digest = digest

    def build(self, level: str, kind: str, limits: LimitLevel) -> tuple[LimitChecker, ...]:
        """Build the limits of one kind at a level; none if it is switched off."""
        entries = limits_of(limits, kind)
        return tuple(
            self._build_limit(level, kind, index, entry, limits)
            for index, entry in enumerate(entries)
        )

    def _build_limit(
        self, level: str, kind: str, index: int, entry: Any, limits: LimitLevel
    ) -> LimitChecker:
        id_ = limit_id(level, kind, index, entry)
        settings = _limit_settings(id_, entry, limits)
        settings["probe_timeout"] = self._policy.bounds.unreported
        max_entries = self._policy.bounds.window_entries
        if kind == "repeat":
            return self._build_repeat(settings, level, index, entry)
        if kind == "cycle":
            return CycleChecker(
                **settings, max=entry.max, longest=entry.longest, shortest=entry.shortest
            )
        if kind == "stale":
            return StaleChecker(**settings, max=entry.max, window=entry.window)
        if kind == "no_progress":
            return NoProgressChecker(**settings, max=entry.max, max_tools=max_entries)
        if kind == "failures":
            return FailuresChecker(
                **settings,
                max=entry.max,
                by="call" if entry.same == "call" else entry.by or "",
                same=entry.same if entry.same in ("error", "result") else "",
                signature=entry.signature or "",
                despite_changes=entry.despite_changes,
                max_names=max_entries,
            )
        if kind == "outage":
            return OutageChecker(
                **settings,
                max=entry.max,
                within=entry.within,
                cooldown=entry.cooldown,
                # Tools of one glob fail together; tools of one class do not.
                shared=level.startswith("tools:"),
                max_breakers=max_entries,
            )
        return PollingChecker(
            **settings,
            max=UNBOUNDED if entry.unchanged is None else entry.unchanged,
            cooldown=entry.cooldown,
            unchanged=entry.unchanged,
            max_polls=max_entries,
        )

    def _build_repeat(
        self, settings: dict[str, Any], level: str, index: int, entry: RepeatLimit
    ) -> LimitChecker:
        # A `max` of 0 refuses every call, also one without an earlier result to compare with.
        if entry.same == "result" and entry.max:
            return SameResultChecker(**settings, max=entry.max, window=1)
        window = self._policy.bounds.window_entries if entry.window == "all" else entry.window
        if entry.despite_changes and entry.by is None and entry.max:
            return UnchangedChecker(
                **settings, max=entry.max, window=window, without_news=entry.without_news
            )
        path = limit_path(self._policy.limits[level], level, "repeat", index)
        expression = self._expressions.get(*path, "key")
        key: Callable[[Attempt], str] | None = None
        if expression is not None:
            key = _value_key(expression, self._digest)
        elif entry.same == "error":
            key = _tool_key
        elif entry.same == "target":
            key = _target_key(self._digest)
        settings.update(
            max=entry.max,
            window=window,
            same="key" if expression is not None else entry.same,
            key=key,
            despite_changes=entry.despite_changes,
        )
        if entry.by == "tool":
            return RepeatByToolChecker(**settings, max_tools=self._policy.bounds.window_entries)
        return RepeatChecker(**settings)


def build_refusals(level: str, limits: LimitLevel) -> RefusalsChecker | None:
    """Build a level's limit on refusals; None if it has none."""
    entry = limits.refusals
    if not isinstance(entry, RefusalsLimit):
        return None
    settings = _limit_settings(f"limits/{level}/refusals", entry, limits)
    return RefusalsChecker(**settings, max=entry.max)


def _limit_settings(id_: str, entry: AnyLimit, limits: LimitLevel) -> dict[str, Any]:
    """Return the settings that all limits share."""
    return {
        "id": id_,
        "escalation": Escalation(entry.effect, **thresholds(entry)),
        "per_turn": entry.per == "turn",
        "counts_tree": getattr(entry, "count", "") == "tree",
        "observe": is_observed(entry, limits),
        "refuse_tool": entry.refuse == "tool",
        "until": entry.until or "",
    }


def thresholds(entry: AnyLimit | BudgetEntry) -> dict[str, Any]:
    """Return the escalation thresholds of an entry, as `Escalation` names them."""
    return {name: getattr(entry, name) for name in ("advise_at", "ask_at", "halt_at")}


def is_observed(*entries: Entry) -> bool:
    """Whether the first of an entry and what it belongs to that has a mode only observes."""
    return next((entry.mode for entry in entries if entry.mode is not None), None) == "observe"


def _value_key(expression: Expression, digest: Callable[[str], str]) -> Callable[[Attempt], str]:
    def key(attempt: Attempt) -> str:
        import json  # slow import

        return digest(json.dumps(expression(attempt.activation), sort_keys=True, default=str))

    return key


def _tool_key(attempt: Attempt) -> str:
    return attempt.full_name


def _target_key(digest: Callable[[str], str]) -> Callable[[Attempt], str]:
    def key(attempt: Attempt) -> str:
        import json  # slow import

        targets = sorted(set(attempt.targets))
        return digest(json.dumps([attempt.full_name, targets])) if targets else attempt.fingerprint

    return key
