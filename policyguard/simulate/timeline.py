"""The timeline of a session: its beginning, and what is around the first divergence."""

from __future__ import annotations

from collections import deque

import msgspec

from policyguard.model.event import Admitted, Completed, Refused
from policyguard.model.outcome import Outcome
from policyguard.report.figures import CallFigures, Recorded
from policyguard.simulate.answer import Answer

FIRST = 10
"""Calls at the beginning of a session that its timeline shows."""
BEFORE = 20
"""Calls before the first divergence; without one, the last of the session."""
AFTER = 30
"""Calls from the first divergence on."""
EXCERPT = 240
"""Characters of arguments, messages and errors that are shown."""

_encode = msgspec.json.Encoder().encode


class ShownCall:
    """A call as far as it is shown; the figures are made only where they are wanted.

    `answers` are the policy's and, where there is one, the baseline's.
    """

    __slots__ = (
        "_answers",
        "_args",
        "_at",
        "_call",
        "_counterfactual",
        "_error",
        "_place",
        "_recorded",
        "_signature",
        "_tool",
    )

    def __init__(
        self,
        event: Admitted | Refused,
        place: int,
        answers: tuple[Answer, ...],
        *,
        counterfactual: bool,
    ) -> None:
        self._place = place
        self._call = event.call
        self._tool = event.tool
        self._at = event.at
        self._answers = answers
        self._counterfactual = counterfactual
        self._args = None if event.args is None else _arguments(event.args)
        self._recorded: Recorded = "none" if event.__class__ is Admitted else "refused"
        self._error: str | None = None
        self._signature: str | None = None

    def result(self, event: Completed, outcome: Outcome) -> None:
        """Note what the recording says came of it."""
        if event.known == "unknown":
            self._recorded = "unknown"
        elif outcome.ok:
            self._recorded = "ok"
        else:
            self._recorded = "failed" if event.known == "explicit" else "failed (inferred)"
            self._error = cut(event.error if event.error is not None else event.text)
            self._signature = outcome.signature or None

    def figures(self) -> CallFigures:
        """What is shown of it."""
        answer, *others = self._answers
        return CallFigures(
            place=self._place,
            call=self._call,
            tool=self._tool,
            effect=answer.effect,
            recorded=self._recorded,
            at=self._at,
            # A cut within a character leaves bytes that are none.
            args=None if self._args is None else cut(self._args.decode("utf-8", "ignore")),
            rule=answer.rule,
            message=cut(answer.message) if answer.message else None,
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

    __slots__ = ("_after", "_first", "_near", "wanted")

    def __init__(self, *, wanted: bool) -> None:
        self.wanted = wanted
        self._first: list[ShownCall] = []
        self._near: deque[ShownCall] = deque(maxlen=BEFORE)
        self._after: list[ShownCall] = []

    def add(self, call: ShownCall, *, diverged: bool) -> None:
        """Add a call; `diverged`: it, or one before it, has gone otherwise than recorded."""
        if diverged:
            self._after.append(call)
            self.wanted = len(self._after) < AFTER
        elif len(self._first) < FIRST:
            self._first.append(call)
        else:
            self._near.append(call)

    def figures(self) -> list[CallFigures]:
        """The calls that are shown, in order."""
        return [
            call.figures() for calls in (self._first, self._near, self._after) for call in calls
        ]


def cut(text: str) -> str:
    """An excerpt of a text."""
    return text if len(text) <= EXCERPT else text[:EXCERPT] + "…"


def _arguments(args: dict[str, object]) -> bytes:
    """The beginning of a call's arguments as JSON."""
    try:
        return _encode(args)[: EXCERPT * 4 + 4]
    except (TypeError, ValueError, RecursionError):
        return "…".encode()
