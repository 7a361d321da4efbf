"""Errors in the evaluation of a call, and refusals as exceptions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from policyguard.model.decision import Decision

if TYPE_CHECKING:
    from policyguard.model.outcome import Recorded


class PolicyguardError(Exception):
    """The base of the errors that policyguard raises for its users to catch."""


class ExpressionError(PolicyguardError):
    """An expression of the policy has no value for this call: a key is missing, types do not fit.

    Internal: a rule's `on_error` handles it, and `Decision.errors` reports it.
    """


class ArgumentsError(PolicyguardError):
    """A call's arguments cannot be judged: not JSON, too large, or nested too deep."""


class NonPlainArgumentsError(Exception):
    """A call's arguments are JSON in other types than Python's own: enums, numpy numbers, mappings.

    Internal. `plain` holds the same in Python's own types. `opaque` names the arguments that
    stand for objects which equal nothing.
    """

    def __init__(self, plain: dict[str, Any], opaque: Collection[str] = ()) -> None:
        self.plain = plain
        self.opaque = opaque
        super().__init__()


class ClosedError(PolicyguardError, RuntimeError):
    """The session or its guard is closed, or the run is over: `str()` of it says what to do."""


class SessionLimitError(PolicyguardError, RuntimeError):
    """A session cannot be opened: it would evict one of its own ancestors (`bounds.sessions`)."""


class UnknownCallError(PolicyguardError, LookupError):
    """A reported call is not one of this session, or no longer: `str()` of it says why."""


class CallRefused(PolicyguardError):  # noqa: N818 - a refusal is an answer, not an error of the program
    """A call made through `Session.run` or a guarded tool was refused; `decision` says why.

    `str()` of it is the text for the model.
    """

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        super().__init__(decision.message)

    def __reduce__(self) -> tuple[type[CallRefused], tuple[Decision]]:
        return type(self), (self.decision,)


class ToolTimeoutError(PolicyguardError, TimeoutError):
    """A call made through `Session.run`, `arun` or a guarded tool ran out of its time.

    `decision` says how much it had (`timeout`, seconds) and who says so (`timeout_by`). The call
    has been recorded as failed. An async function was cancelled; a plain one cannot be stopped,
    and may still be running. `str()` of it is the text for the model.
    """

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        given = decision.timeout or 0.0
        shown = f"{given:.3g}" if given < 1000 else f"{given:.0f}"
        super().__init__(f"timed out after {shown} s ({decision.timeout_by})")

    def __reduce__(self) -> tuple[type[ToolTimeoutError], tuple[Decision]]:
        return type(self), (self.decision,)


class RedactedError(PolicyguardError):
    """A tool raised an error in which result rules redact, cut or withhold something.

    `Session.run`, `arun` and guarded tools raise it in place of the tool's own. `recorded` is what
    was recorded; `str()` of it is the text for the model.
    """

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        super().__init__(recorded.text)

    def __reduce__(self) -> tuple[type[RedactedError], tuple[Recorded]]:
        return type(self), (self.recorded,)
