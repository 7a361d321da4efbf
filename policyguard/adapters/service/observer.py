"""Counts decisions, and keeps why they were made for people who look later."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from policyguard.adapters.service.metrics import Metrics
from policyguard.model.decision import Decision
from policyguard.model.outcome import Recorded

if TYPE_CHECKING:
    from policyguard.adapters.service.console.feed import ConsoleFeed

_MAX_REASONS = 2000
"""The calls of which it is kept why an entry fired: for a console that is opened later."""


class ServiceObserver:
    """Passes decisions and results to the metrics, and to the console once one is open."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.feed: ConsoleFeed | None = None
        self._reasons: OrderedDict[tuple[str, str], str] = OrderedDict()

    def note_decision(self, decision: Decision) -> None:
        """Count a decision, and keep why an entry fired."""
        self.metrics.note_decision(decision)
        if not decision.violations:
            return
        text = decision.violations[0].text
        self._reasons[decision.session, decision.id] = text
        if len(self._reasons) > _MAX_REASONS:
            self._reasons.popitem(last=False)
        if self.feed is not None:
            self.feed.note_reason(decision.session, decision.id, text)

    def note_result(self, recorded: Recorded) -> None:
        """Count a result."""
        self.metrics.note_result(recorded)

    def reasons(self) -> Iterator[tuple[str, str, str]]:
        """Yield why entries fired on the latest calls: session, call and text."""
        for (session, call), text in [*self._reasons.items()]:
            yield session, call, text
