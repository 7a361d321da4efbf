"""A call on its way through the evaluator, and what is remembered of it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from policyguard.evaluator.activation import Activation
from policyguard.model.decision import EvalError
from policyguard.model.event import Charge
from policyguard.model.text import sanitize

if TYPE_CHECKING:
    from policyguard.evaluator.bound_plan import BoundPlan
    from policyguard.evaluator.session_state import SessionState

EMPTY: Mapping[str, Any] = MappingProxyType({})
UNRECORDED_ARGS: dict[str, Any] = {}
"""The arguments of a call that was written down without them, rebuilt: whatever they were."""


class WindowEntry(msgspec.Struct, eq=False, gc=False):
    """What windows remember of an admitted call when it is over.

    `key` is what a repetition of it is told by: the fingerprint, where the policy says nothing
    else. `result` and `failure` are fingerprints (see `Outcome`), a failure's result marked with
    `!`; the result is None until there is one. `seq` is the number of the completion. A call is
    `excused` where the harness is to blame for its failure, and `moves` where its result is still
    pending and another one than before.
    """

    fingerprint: str
    key: str
    result_fingerprint: str | None = None
    error_fingerprint: str = ""
    seq: int = 0
    blames_harness: bool = False
    has_new_pending_result: bool = False


class Attempt(msgspec.Struct, eq=False):
    """What is known of a call: what its caller said, and what the policy makes of it.

    `fingerprint` is that of the first call whose tolerant numbers are close, `exact` its own where
    that is another one. `keys` holds, for each limit that tells sameness by something else than
    the fingerprint, what it tells it by; `charges` what the call takes from budgets at admission,
    `asks` those of them that an approval raises, `insisted` those of budgets whose steps count
    attempts. `at` is nanoseconds or None (a record without time); `ended`, known from its
    completion on, is when its result came. `radius` names the schedule that says how many targets
    it may touch, if one does. `timeout` is how long it may take (ns), as the entry `timeout_by`
    says. `changing`, whether a success may change state, is None until it matters. `walk` is its
    plan with the session's trackers; `call`, from its admission on, what windows remember of it,
    and `marks` what single limits do, by their ids.
    """

    tool: str
    args: dict[str, Any]
    at: int | None
    session: SessionState
    id: str = ""
    server: str = ""
    batch: str = ""
    host_call: str = ""
    tags: Mapping[str, Any] = EMPTY
    hints: Mapping[str, bool] = EMPTY
    estimate: Mapping[str, float] = EMPTY
    class_: str = ""
    fingerprint: str = ""
    exact_fingerprint: str = ""
    loose_fingerprint: str = ""
    numbers: tuple[float, ...] = ()
    previous: Mapping[str, Any] = EMPTY
    targets: tuple[str, ...] = ()
    state_changing: bool | None = None
    keys: Mapping[str, str] = EMPTY
    charges: tuple[Charge, ...] = ()
    approval_charges: tuple[Charge, ...] = ()
    attempt_charges: tuple[Charge, ...] = ()
    errors: tuple[EvalError, ...] = ()
    probes: tuple[str, ...] = ()
    radius: str = ""
    timeout: int | None = None
    timeout_by: str = ""
    completed_at: int | None = None
    limit_notes: Mapping[str, Any] = EMPTY
    # Set on the way, before anybody reads them.
    bound_plan: BoundPlan = None  # type: ignore[assignment]  # by `Evaluator.prepare`
    window_entry: WindowEntry = None  # type: ignore[assignment]  # by `calls.admit`
    _activation: Activation | None = None
    _is_completed: bool = False

    @property
    def activation(self) -> Activation:
        """What expressions see of it."""
        view = self._activation
        if view is None:
            at = self.completed_at if self._is_completed else self.at
            view = self._activation = Activation(self, self.session.activation_context, at)
        return view

    @property
    def approval_fingerprint(self) -> str:
        """The fingerprint of exactly this call: what somebody says yes to."""
        return self.exact_fingerprint or self.fingerprint

    @property
    def full_name(self) -> str:
        """The tool, on its server where it has one: what another server calls so is another."""
        return f"{self.server}\x1f{self.tool}" if self.server else self.tool

    def mark_completed(self, at: int | None) -> None:
        """Its result has come, at `at` (ns): expressions see the call as it is now."""
        self._is_completed = True
        self.completed_at = at
        if self._activation is not None:
            self._activation = None
        if self.errors:
            self.errors = ()

    def sanitize_reason(self, reason: Exception | str) -> str:
        """Why something is so with this call, as it may be told: a reason quotes arguments."""
        return sanitize(self.session.activation_context.redact(str(reason)))

    def add_error(self, entry: str, error: Exception | str) -> str:
        """An expression of an entry failed on this call. Returns what is told of it, once."""
        told = self.sanitize_reason(error)
        fault = EvalError(entry, told)
        if fault not in self.errors:
            self.errors = (*self.errors, fault)
        return told

    def add_limit_note(self, entry: str, note: object) -> None:
        """Note what a limit remembers of this call until it has its result."""
        self.limit_notes = {**self.limit_notes, entry: note}

    def cap_timeout(self, timeout: int, by: str) -> None:
        """The call may take no longer than this (ns); the shortest such time holds."""
        if self.timeout is None or timeout < self.timeout:
            self.timeout = timeout
            self.timeout_by = by
