"""Prometheus metrics of the service.

Labels are of few values: an entry of the policy, an effect, a path. Ids of learned constraints,
sessions and tools would add a time series for each.

Each request is counted, so that counting is done in plain numbers under one lock; Prometheus'
classes see them when they are read.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from policyguard.model.decision import Decision
from policyguard.model.outcome import Recorded

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard

_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0)
"""The upper ends of the ranges that times are counted in, in seconds."""


class _Times:
    """How long the requests of one path took: how many in each range, and the sum in seconds."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.seconds = 0.0


class Metrics(Collector):
    """What the service counts."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self._lock = Lock()
        self._requests: defaultdict[str, _Times] = defaultdict(_Times)
        self._errors: Counter[tuple[str, ...]] = Counter()
        self._decisions: Counter[tuple[str, ...]] = Counter()
        self._violations: Counter[tuple[str, ...]] = Counter()
        self._outcomes: Counter[tuple[str, ...]] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def note_request(self, path: str, seconds: float) -> None:
        """Count a request that was carried out."""
        with self._lock:
            times = self._requests[path]
            times.counts[bisect_left(_BUCKETS, seconds)] += 1
            times.seconds += seconds

    def note_error(self, path: str) -> None:
        """Count a request that was not."""
        with self._lock:
            self._errors[path,] += 1

    def note_decision(self, decision: Decision) -> None:
        """Count a decision, and the entries that fired."""
        effect = decision.effect.value
        with self._lock:
            self._decisions[effect,] += 1
            for violation in decision.violations:
                is_learned = violation.id.startswith("constraints/")
                self._violations["constraints" if is_learned else violation.id, effect] += 1

    def note_result(self, recorded: Recorded) -> None:
        """Count a result."""
        with self._lock:
            self._outcomes[recorded.outcome.state,] += 1

    def render(self) -> tuple[bytes, str]:
        """Return the metrics in Prometheus' text format, and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: the registry need not count to learn the names."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield what was counted so far."""
        with self._lock:
            yield self._collect_times()
            yield _collect_counts(
                "policyguard_request_errors",
                "Requests that were not carried out.",
                ["path"],
                self._errors,
            )
            yield _collect_counts(
                "policyguard_decisions", "Calls decided on.", ["effect"], self._decisions
            )
            yield _collect_counts(
                "policyguard_violations",
                "Entries of the policy that fired, by the effect of the call.",
                ["entry", "effect"],
                self._violations,
            )
            yield _collect_counts(
                "policyguard_outcomes", "Results of calls.", ["state"], self._outcomes
            )
        yield GaugeMetricFamily(
            "policyguard_constraints",
            "Learned constraints that hold.",
            len(self.guard.constraints()),
        )
        sync = self.guard._constraint_sync
        yield GaugeMetricFamily(
            "policyguard_constraints_age_seconds",
            "Time since the learned constraints were last known to be those of the store.",
            time.monotonic() - sync.current_at if sync is not None else 0.0,
        )

    def _collect_times(self) -> Metric:
        family = HistogramMetricFamily(
            "policyguard_request_seconds",
            "Time from a request's first byte to its answer.",
            labels=["path"],
        )
        ends = [*map(str, _BUCKETS), "+Inf"]
        for path, times in self._requests.items():
            buckets = [*zip(ends, accumulate(times.counts), strict=True)]
            family.add_metric([path], buckets, times.seconds)
        return family


def _collect_counts(
    name: str, documentation: str, labels: list[str], counts: Mapping[tuple[str, ...], int]
) -> Metric:
    family = CounterMetricFamily(name, documentation, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family
