"""What the model reads with results: notes on calls that ran, answers to those that waited."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.session_state import SessionState
from policyguard.guard.approvals.answers import describe_approval, describe_denial
from policyguard.model.effect import Effect
from policyguard.model.event import (
    Admitted,
    Approved,
    Completed,
    Denied,
    Event,
    Refused,
    Released,
    SessionEnded,
)
from policyguard.model.limits import limit_kind
from policyguard.model.text import sanitize

T = TypeVar("T")

_FAILURES = ("failures", "outage")
"""Limits whose advice is moot once the call has succeeded."""


class PendingAdvice:
    """Texts by call or batch: every result of a batch carries the advice of all its calls.

    `answers` are what people answered to calls that waited, by the call's fingerprint: the next
    result carries them. At most `max_entries` of each are kept; the oldest is dropped first.
    """

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self.texts: dict[str, list[str]] = {}
        self.of_failures: set[str] = set()
        """The calls of which only failures were noted."""
        self.answers: dict[str, str] = {}

    def add(self, call: str, batch: str, text: str, entries: Iterable[str]) -> None:
        """Add a text for the results of a call or its batch, and the ids of what it is from."""
        self.texts.setdefault(batch or call, []).append(text)
        if not batch and all(limit_kind(id_) in _FAILURES for id_ in entries):
            self.of_failures.add(call)
        _keep_latest(self.texts, self._max_entries)
        self.of_failures &= self.texts.keys()

    def drop(self, call: str) -> None:
        """Forget the texts of a call."""
        self.texts.pop(call, None)
        self.of_failures.discard(call)

    def add_answer(self, fingerprint: str, text: str) -> None:
        """Add what the model reads with its next result, unless it makes the call before."""
        self.answers[fingerprint] = text
        _keep_latest(self.answers, self._max_entries)

    def take(self, call: str, batch: str, *, succeeded: bool) -> str:
        """Return the texts for a result; forget them, but those of a batch.

        What was noted of failures alone does not come with a success.
        """
        texts = self.texts.get(batch or call, ())
        if succeeded and call in self.of_failures:
            texts = ()
        self.drop(call)
        answers, self.answers = self.answers, {}
        return "\n".join([*texts, *answers.values()])


class RebuiltAdvice:
    """Rebuilds from a session's events what `pending` was when the session was closed."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._max_entries = evaluator.bounds.in_flight
        self._requirements = evaluator.approval_requirements
        self.pending = PendingAdvice(self._max_entries)
        self._asked: dict[str, str] = {}
        """The tools of calls that waited, by the call's fingerprint."""

    def follow(self, event: Event, state: SessionState | None) -> None:
        """Note an event that was folded into the `state` of its session."""
        pending = self.pending
        if isinstance(event, SessionEnded):
            self.pending = PendingAdvice(self._max_entries)
        elif isinstance(event, (Completed, Released)):
            pending.drop(event.call)
            if isinstance(event, Completed):
                pending.answers.clear()
        elif isinstance(event, (Admitted, Refused)):
            fingerprint = event.exact_fingerprint or event.fingerprint
            pending.answers.pop(fingerprint, None)
            if isinstance(event, Refused):
                if event.effect == Effect.ASK:
                    self._asked[fingerprint] = event.shown_tool
                    _keep_latest(self._asked, self._max_entries)
            elif event.violations:
                text = event.advice or _name_entries(event)
                pending.add(event.call, event.batch, text, event.violations)
        elif isinstance(event, (Approved, Denied)) and event.fingerprint in self._asked:
            tool = self._asked[event.fingerprint]
            if isinstance(event, Denied):
                pending.add_answer(event.fingerprint, describe_denial(tool, event))
            elif state is not None and self._is_approved(event, state):
                pending.add_answer(event.fingerprint, describe_approval(tool, event.by))

    def _is_approved(self, event: Approved, state: SessionState) -> bool:
        """Whether nothing that asked about the call waits for another answer."""
        request = state.approvals.requests.get(event.fingerprint)
        return (
            request is not None
            and request.call is not None
            and all(
                state.approvals.is_approved(
                    event.fingerprint, self._requirements.get(id_), event.at
                )
                for id_ in request.call.violations
            )
        )


def _name_entries(event: Admitted) -> str:
    """Return what is left of advice of which the journal does not keep the words."""
    return f"A note on `{sanitize(event.shown_tool)}`: {', '.join(event.violations)}"


def _keep_latest(entries: dict[str, T], most: int) -> None:
    if len(entries) > most:
        del entries[next(iter(entries))]
