"""Prometheus metrics of the service.

Labels are of few values: an entry of the policy, an effect, a path. Ids of learned constraints,
sessions and tools would add a time series for each.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from policyguard.model.decision import Decision
from policyguard.model.outcome import Recorded

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard

_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0)


class Metrics:
    """What the service counts."""

    def __init__(self, guard: Guard) -> None:
        self._registry = CollectorRegistry()
        self._requests = Histogram(
            "policyguard_request_seconds",
            "Time from a request's first byte to its answer.",
            ["path"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._errors = Counter(
            "policyguard_request_errors",
            "Requests that were not carried out.",
            ["path"],
            registry=self._registry,
        )
        self._decisions = Counter(
            "policyguard_decisions", "Calls decided on.", ["effect"], registry=self._registry
        )
        self._violations = Counter(
            "policyguard_violations",
            "Entries of the policy that fired, by the effect of the call.",
            ["entry", "effect"],
            registry=self._registry,
        )
        self._outcomes = Counter(
            "policyguard_outcomes", "Results of calls.", ["state"], registry=self._registry
        )
        self._constraints = Gauge(
            "policyguard_constraints", "Learned constraints that hold.", registry=self._registry
        )
        self._constraints_age = Gauge(
            "policyguard_constraints_age_seconds",
            "Time since the learned constraints were last known to be those of the store.",
            registry=self._registry,
        )
        self.guard = guard
        # Finding the series of a label takes longer than counting in it.
        self._series: dict[tuple[str, ...], Histogram | Counter] = {}

    def note_request(self, path: str, seconds: float) -> None:
        """Count a request that was carried out."""
        series = self._series.get((path,))
        if series is None:
            series = self._series[path,] = self._requests.labels(path)
        cast("Histogram", series).observe(seconds)

    def note_error(self, path: str) -> None:
        """Count a request that was not."""
        self._errors.labels(path).inc()

    def note_decision(self, decision: Decision) -> None:
        """Count a decision, and the entries that fired."""
        effect = decision.effect.value
        series = self._series.get(("decision", effect))
        if series is None:
            series = self._series["decision", effect] = self._decisions.labels(effect)
        cast("Counter", series).inc()
        for violation in decision.violations:
            is_learned = violation.id.startswith("constraints/")
            entry = "constraints" if is_learned else violation.id
            self._violations.labels(entry, effect).inc()

    def note_result(self, recorded: Recorded) -> None:
        """Count a result."""
        state = recorded.outcome.state
        series = self._series.get(("outcome", state))
        if series is None:
            series = self._series["outcome", state] = self._outcomes.labels(state)
        cast("Counter", series).inc()

    def render(self) -> tuple[bytes, str]:
        """Return the metrics in Prometheus' text format, and its media type."""
        self._constraints.set(len(self.guard.constraints()))
        sync = self.guard._constraint_sync
        self._constraints_age.set(time.monotonic() - sync.current_at if sync is not None else 0.0)
        return generate_latest(self._registry), CONTENT_TYPE_LATEST
