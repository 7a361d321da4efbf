"""Prometheus metrics of the service.

Labels are of few values: an entry of the policy, an effect, a path. Ids of learned constraints,
sessions and tools would add a time series for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from policyguard.model.event import Admitted, Completed, Event, Refused

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard

_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0)


class Metrics:
    """What the service counts. Decisions are counted from the guard's events."""

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
        self._guard = guard
        guard.on(self._count, Admitted, Refused, Completed)

    def observe(self, path: str, seconds: float) -> None:
        """Count a request that was carried out."""
        self._requests.labels(path).observe(seconds)

    def count_error(self, path: str) -> None:
        """Count a request that was not."""
        self._errors.labels(path).inc()

    def render(self) -> tuple[bytes, str]:
        """Return the metrics in Prometheus' text format, and its media type."""
        self._constraints.set(len(self._guard.constraints()))
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def _count(self, event: Event) -> None:
        if isinstance(event, Completed):
            self._outcomes.labels(event.state or "unknown").inc()
            return
        assert isinstance(event, (Admitted, Refused))  # noqa: S101 - the others are not asked for
        self._decisions.labels(event.effect).inc()
        for id_ in event.violations:
            entry = "constraints" if id_.startswith("constraints/") else id_
            self._violations.labels(entry, event.effect).inc()
