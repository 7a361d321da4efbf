"""What the policy's expressions see of a call: the variables of POLICY_LANGUAGE §5."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from policyguard.evaluator.attempt import Attempt


class Ground(NamedTuple):
    """What every view of a policy has in common.

    `derive` computes what expressions read of a call beyond its plain fields, `targets` what it
    touches (None: nobody asks); `instant` and `span` turn nanoseconds into what expressions see as
    times.
    """

    lists: dict[str, Any]
    params: dict[str, Any]
    targets: Callable[[dict[str, Any]], tuple[str, ...]] | None
    derive: tuple[tuple[str, Callable[[dict[str, Any]], Any]], ...]
    reads_previous: bool
    instant: Callable[[int], Any]
    span: Callable[[int], Any]


class View:
    """One value a variable, each made when an expression first reads it.

    `at` is when it is looked (ns): a call is looked at when it is checked, and again when its
    result has come, which `outcome` then is.
    """

    __slots__ = (
        "_at",
        "_attempt",
        "_ground",
        "call",
        "lists",
        "now",
        "outcome",
        "params",
        "session",
        "tags",
    )

    call: dict[str, Any]
    now: Any
    session: dict[str, Any]
    tags: dict[str, Any]

    def __init__(self, attempt: Attempt, ground: Ground, at: int | None) -> None:
        self._attempt = attempt
        self._ground = ground
        self._at = at
        self.lists = ground.lists
        self.params = ground.params
        self.outcome: dict[str, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        """A variable that has not been read yet: its slot is empty."""
        made = _MADE.get(name)
        if made is None:
            raise AttributeError(name)
        value = made(self)
        setattr(self, name, value)
        return value

    def _tags(self) -> dict[str, Any]:
        tags: dict[str, Any] = self._attempt.session.facts["tags"]
        return {**tags, **self._attempt.tags} if self._attempt.tags else tags

    def _call(self) -> dict[str, Any]:
        attempt, ground = self._attempt, self._ground
        call = {
            "tool": attempt.tool,
            "server": attempt.server,
            "class": attempt.class_,
            "agent": attempt.session.agent,
            "session": attempt.session.id,
            "batch": attempt.batch,
            "args": attempt.args,
            "tags": self.tags,
            "hints": dict(attempt.hints),  # expressions know dicts alone
            "targets": list(attempt.targets),
        }
        if ground.reads_previous:
            call["previous"] = dict(attempt.previous)
        for name, derive in ground.derive:
            call[name] = derive(attempt.args)
        return call

    def _session(self) -> dict[str, Any]:
        session = self._attempt.session
        facts = session.facts
        facts["running"] = len(session.flights) + len(session.overdue)
        begun, at = session.started_at, self._at
        facts["elapsed"] = (
            self._ground.span(at - begun) if at is not None and begun is not None else None
        )
        return facts

    def _now(self) -> Any:
        return self._ground.instant(self._at) if self._at is not None else None


_MADE: dict[str, Callable[[View], Any]] = {
    "call": View._call,
    "now": View._now,
    "session": View._session,
    "tags": View._tags,
}

Expression = Callable[[View], Any]
"""A compiled CEL expression. Raises `ExpressionError` where it has no value."""
