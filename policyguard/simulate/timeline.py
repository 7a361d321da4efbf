"""The timeline of a session: its beginning, and what is around the first divergence."""

from __future__ import annotations

from collections import deque

import msgspec

from policyguard.model.event import Admitted, Completed, Refused
from policyguard.model.outcome import Outcome
from policyguard.report.replay.figures import CallFigures, RecordedOutcome
from policyguard.simulate.session_replay import ReplayDecision

FIRST_CALLS = 10
"""Calls at the beginning of a session that its timeline shows."""
CALLS_BEFORE = 20
"""Calls before the first divergence; without one, the last of the session."""
CALLS_AFTER = 30
"""Calls from the first divergence on."""
EXCERPT_CHARS = 240
"""Characters of arguments, messages and errors that are shown."""

_encode = msgspec.json.Encoder().encode


class TimelineCall:
    """A call as far as it is shown; the figures are made only where they are wanted.

    `answers` are the policy's and, where there is one, the baseline's.
    """

    __slots__ = (
        "_args",
        "_at",
        "_call",
        "_counterfactual",
        "_decisions",
        "_error",
        "_index",
        "_recorded",
        "_signature",
        "_tool",
    )

    def __init__(
        self,
        event: Admitted | Refused,
        index: int,
        decisions: tuple[ReplayDecision, ...],
        *,
        counterfactual: bool,
    ) -> None:
        self._index = index
        self._call = event.call
        self._tool = event.tool
        self._at = event.at
        self._decisions = decisions
        self._counterfactual = counterfactual
        self._args = None if event.args is None else _encode_args(event.args)
        self._recorded: RecordedOutcome = "none" if event.__class__ is Admitted else "refused"
        self._error: str | None = None
        self._signature: str | None = None

    def add_result(self, event: Completed, outcome: Outcome) -> None:
        """Note what the recording says came of it."""
        if event.provenance == "unknown":
            self._recorded = "unknown"
        elif outcome.ok:
            self._recorded = "ok"
        else:
            self._recorded = "failed" if event.provenance == "explicit" else "failed (inferred)"
            self._error = excerpt(event.error if event.error is not None else event.text)
            self._signature = outcome.signature or None

    def figures(self) -> CallFigures:
        """What is shown of it."""
        answer, *others = self._decisions
        return CallFigures(
            index=self._index,
            call=self._call,
            tool=self._tool,
            effect=answer.effect,
            recorded=self._recorded,
            at=self._at,
            # A cut within a character leaves bytes that are none.
            args=None if self._args is None else excerpt(self._args.decode("utf-8", "ignore")),
            rule=answer.rule,
            message=excerpt(answer.message) if answer.message else None,
            counterfactual=self._counterfactual,
            error=self._error,
            signature=self._signature,
            baseline=others[0].effect if others else None,
            baseline_rule=others[0].rule if others else None,
        )


class Timeline:
    """Calls as they come, as many of them as are shown.

    `wanted` is False from when on no further call will be.
    """

    __slots__ = ("_after", "_first", "_recent", "accepts_calls")

    def __init__(self, *, accepts_calls: bool) -> None:
        self.accepts_calls = accepts_calls
        self._first: list[TimelineCall] = []
        self._recent: deque[TimelineCall] = deque(maxlen=CALLS_BEFORE)
        self._after: list[TimelineCall] = []

    def add(self, call: TimelineCall, *, diverged: bool) -> None:
        """Add a call; `diverged`: it, or one before it, has gone otherwise than recorded."""
        if diverged:
            self._after.append(call)
            self.accepts_calls = len(self._after) < CALLS_AFTER
        elif len(self._first) < FIRST_CALLS:
            self._first.append(call)
        else:
            self._recent.append(call)

    def figures(self) -> list[CallFigures]:
        """The calls that are shown, in order."""
        return [
            call.figures() for calls in (self._first, self._recent, self._after) for call in calls
        ]


def excerpt(text: str) -> str:
    """An excerpt of a text."""
    return text if len(text) <= EXCERPT_CHARS else text[:EXCERPT_CHARS] + "…"


def _encode_args(args: dict[str, object]) -> bytes:
    """The beginning of a call's arguments as JSON."""
    try:
        return _encode(args)[: EXCERPT_CHARS * 4 + 4]
    except (TypeError, ValueError, RecursionError):
        return "…".encode()
