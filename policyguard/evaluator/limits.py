"""What all kinds of limits have in common: each is asked before a call and told what came of it.

A limit is a value of the policy and holds no state; its *tracker* holds what one session (or
turn) has done as far as this limit cares. A session makes a tracker when a call first comes under
the limit.
"""

from __future__ import annotations

from typing import Any, Protocol

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.changes import Changes
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.outcome import Outcome


class Limit(Protocol):
    """A kind of limit: repeat, cycle, failures, outage, polling."""

    id: str
    effect: Effect
    observe: bool
    per_turn: bool

    def tracker(self) -> Any:
        """Fresh state for a session or turn."""

    def judge(self, tracker: Any, attempt: Attempt, changes: Changes) -> Violation | None:
        """What this limit has against the attempt. Changes nothing."""

    def admit(self, tracker: Any, attempt: Attempt) -> Any:
        """Take the admitted call into account; what is returned comes back in the next two."""

    def complete(
        self, tracker: Any, mark: Any, attempt: Attempt, outcome: Outcome, seq: int
    ) -> None:
        """Take the call's outcome into account. `seq` numbers the session's completions."""

    def release(self, tracker: Any, mark: Any, attempt: Attempt) -> None:
        """Forget the admission: the call did not run."""
