"""A call on its way through the evaluator, and what is remembered of it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from policyguard.evaluator.view import View
from policyguard.model.decision import Fault
from policyguard.model.event import Charge
from policyguard.model.text import printable

if TYPE_CHECKING:
    from policyguard.evaluator.session import SessionState
    from policyguard.evaluator.walk import Walk

NOTHING: Mapping[str, Any] = MappingProxyType({})
LOST: dict[str, Any] = {}
"""The arguments of a call that was written down without them, rebuilt: whatever they were."""


class Call(msgspec.Struct, eq=False, gc=False):
    """What windows remember of an admitted call when it is over.

    `key` is what a repetition of it is told by: the fingerprint, where the policy says nothing
    else. `result` and `failure` are fingerprints (see `Outcome`), a failure's result marked with
    `!`; the result is None until there is one. `seq` is the number of the completion. A call is
    `excused` where the harness is to blame for its failure, and `moves` where its result is still
    pending and another one than before.
    """

    fingerprint: str
    key: str
    result: str | None = None
    failure: str = ""
    seq: int = 0
    excused: bool = False
    moves: bool = False


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
    tags: Mapping[str, Any] = NOTHING
    hints: Mapping[str, bool] = NOTHING
    estimate: Mapping[str, float] = NOTHING
    class_: str = ""
    fingerprint: str = ""
    exact: str = ""
    like: str = ""
    numbers: tuple[float, ...] = ()
    previous: Mapping[str, Any] = NOTHING
    targets: tuple[str, ...] = ()
    changing: bool | None = None
    keys: Mapping[str, str] = NOTHING
    charges: tuple[Charge, ...] = ()
    asks: tuple[Charge, ...] = ()
    insisted: tuple[Charge, ...] = ()
    faults: tuple[Fault, ...] = ()
    trials: tuple[str, ...] = ()
    radius: str = ""
    timeout: int | None = None
    timeout_by: str = ""
    ended: int | None = None
    marks: Mapping[str, Any] = NOTHING
    # Set on the way, before anybody reads them.
    walk: Walk = None  # type: ignore[assignment]  # by `Evaluator.prepare`
    call: Call = None  # type: ignore[assignment]  # by `calls.admit`
    _view: View | None = None
    _over: bool = False

    @property
    def view(self) -> View:
        """What expressions see of it."""
        view = self._view
        if view is None:
            at = self.ended if self._over else self.at
            view = self._view = View(self, self.session.ground, at)
        return view

    @property
    def own(self) -> str:
        """The fingerprint of exactly this call: what somebody says yes to."""
        return self.exact or self.fingerprint

    @property
    def full_name(self) -> str:
        """The tool, on its server where it has one: what another server calls so is another."""
        return f"{self.server}\x1f{self.tool}" if self.server else self.tool

    def look_again(self, at: int | None) -> None:
        """Its result has come, at `at` (ns): expressions see the call as it is now."""
        self._over = True
        self.ended = at
        if self._view is not None:
            self._view = None
        if self.faults:
            self.faults = ()

    def told(self, reason: Exception | str) -> str:
        """Why something is so with this call, as it may be told: a reason quotes arguments."""
        return printable(self.session.ground.redact(str(reason)))

    def fault(self, entry: str, error: Exception | str) -> str:
        """An expression of an entry failed on this call. Returns what is told of it, once."""
        told = self.told(error)
        fault = Fault(entry, told)
        if fault not in self.faults:
            self.faults = (*self.faults, fault)
        return told

    def mark(self, entry: str, mark: object) -> None:
        """Note what a limit remembers of this call until it has its result."""
        self.marks = {**self.marks, entry: mark}

    def at_most(self, timeout: int, by: str) -> None:
        """The call may take no longer than this (ns); the shortest such time holds."""
        if self.timeout is None or timeout < self.timeout:
            self.timeout = timeout
            self.timeout_by = by
