"""`batch: all_or_none`: once a call of a batch is refused, so are the others."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect

BATCH_REFUSED = "batch/all_or_none"
"""The violation of a call whose batch has a refused call."""


class RefusedBatches:
    """The refused calls of batches: by batch, what refused each call, by its fingerprint.

    A call that is admitted after all, since someone approved it, no longer counts. At most
    `max_batches` are kept.
    """

    def __init__(self, max_batches: int) -> None:
        self._max_batches = max_batches
        self._calls: dict[str, dict[str, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, batch: str, fingerprint: str, entry: str) -> None:
        """Note that an entry refused a call."""
        calls = self._calls.pop(batch, {})
        self._calls[batch] = calls
        calls[fingerprint] = entry
        if len(self._calls) > self._max_batches:
            del self._calls[next(iter(self._calls))]

    def admit(self, attempt: Attempt) -> None:
        """Note that a call was admitted."""
        calls = self._calls.get(attempt.batch)
        if calls is not None:
            calls.pop(attempt.approval_fingerprint, None)
            if not calls:
                del self._calls[attempt.batch]

    def violations(self, attempt: Attempt) -> list[Violation]:
        """Return the violation of a call of which another one in its batch was refused."""
        for fingerprint, entry in self._calls.get(attempt.batch, {}).items():
            if fingerprint != attempt.approval_fingerprint:
                text = f"another call of the same message was refused by {entry}, and this policy"
                text += " runs all of them or none"
                instead = "change or leave out that call, and send the others again"
                return [Violation(BATCH_REFUSED, Effect.BLOCK, "batch", text, instead)]
        return []

    def clear(self) -> None:
        """Forget all batches: a new turn begins."""
        self._calls.clear()
