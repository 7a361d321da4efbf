"""The timeline of a session: its first calls, and those around the first divergence."""

from __future__ import annotations

from collections import deque

import msgspec

from policyguard.model.event import Admitted, Completed, Refused
from policyguard.model.outcome import Outcome
from policyguard.report.replay.figures import CallFigures, RecordedOutcome
from policyguard.simulate.sessions.session_replay import ReplayDecision

FIRST_CALLS = 10
"""Calls shown from the beginning of a session."""
CALLS_BEFORE = 20
"""Calls shown before the first divergence; without one, the last calls of the session."""
CALLS_AFTER = 30
"""Calls shown from the first divergence on."""
EXCERPT_CHARS = 240
"""Characters shown of arguments, messages, results and errors."""

_encode = msgspec.json.Encoder().encode


class TimelineCall:
    """A call in a timeline; its figures are built only if the report shows it.

    `decisions` are the policy's and, if there is one, the baseline's.
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
        "_result",
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
        self._call = event.host_call or event.call
        self._tool = event.shown_tool
        self._at = event.at
        self._decisions = decisions
        self._counterfactual = counterfactual
        self._args = None if event.args is None else _encode_args(event.args)
        self._recorded: RecordedOutcome = "none" if event.__class__ is Admitted else "refused"
        self._error: str | None = None
        self._result: str | None = None
        self._signature: str | None = None

    def add_result(self, event: Completed, outcome: Outcome) -> None:
        """Add the recorded result."""
        self._result = excerpt(event.text)
        if event.provenance == "unknown" or outcome.state == "cancelled":
            self._recorded = "unknown"
        elif outcome.ok:
            self._recorded = "ok"
        else:
            self._result = None
            self._recorded = "failed" if event.provenance == "explicit" else "failed (inferred)"
            self._error = excerpt(event.error if event.error is not None else event.text)
            self._signature = outcome.signature or None

    def figures(self) -> CallFigures:
        """Return the call's figures."""
        decision, *others = self._decisions
        return CallFigures(
            index=self._index,
            call=self._call,
            tool=self._tool,
            effect=decision.effect,
            recorded=self._recorded,
            at=self._at,
            # Truncation may leave half a character.
            args=None if self._args is None else excerpt(self._args.decode("utf-8", "ignore")),
            rule=decision.rule,
            message=excerpt(decision.message) if decision.message else None,
            counterfactual=self._counterfactual,
            error=self._error,
            signature=self._signature,
            result=self._result,
            baseline=others[0].effect if others else None,
            baseline_rule=others[0].rule if others else None,
        )


class Timeline:
    """The calls of a session that its timeline shows.

    `accepts_calls` is False once it is full.
    """

    __slots__ = ("_after", "_first", "_recent", "accepts_calls")

    def __init__(self, *, accepts_calls: bool) -> None:
        self.accepts_calls = accepts_calls
        self._first: list[TimelineCall] = []
        self._recent: deque[TimelineCall] = deque(maxlen=CALLS_BEFORE)
        self._after: list[TimelineCall] = []

    def add(self, call: TimelineCall, *, diverged: bool) -> None:
        """Add a call; `diverged`: it or an earlier one differs from the recording."""
        if diverged:
            self._after.append(call)
            self.accepts_calls = len(self._after) < CALLS_AFTER
        elif len(self._first) < FIRST_CALLS:
            self._first.append(call)
        else:
            self._recent.append(call)

    def figures(self) -> list[CallFigures]:
        """Return the shown calls, in order."""
        return [
            call.figures() for calls in (self._first, self._recent, self._after) for call in calls
        ]


def excerpt(text: str) -> str:
    """Return an excerpt of a text."""
    return text if len(text) <= EXCERPT_CHARS else text[:EXCERPT_CHARS] + "…"


def _encode_args(args: dict[str, object]) -> bytes:
    """Return the beginning of a call's arguments as JSON."""
    try:
        return _encode(args)[: EXCERPT_CHARS * 4 + 4]
    except (TypeError, ValueError, RecursionError):
        return "…".encode()
