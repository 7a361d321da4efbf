"""A call on its way through the evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from policyguard.evaluator.view import Ground, View
from policyguard.model.decision import Fault
from policyguard.model.event import Charge

if TYPE_CHECKING:
    from policyguard.evaluator.limits import Limit
    from policyguard.evaluator.session import SessionState

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Attempt:
    """What is known of a call: what its caller said, and what the policy makes of it.

    `fingerprint` is that of the first call whose tolerant numbers are close, `exact` its own where
    that is another one. `keys` holds, for each limit that tells sameness by something else than
    the fingerprint, what it tells it by; `charges` what the call takes from budgets at admission,
    `asks` those of them that an approval raises, `insisted` those of budgets whose steps count
    attempts. `at` is nanoseconds or None (a record without time); `ended`, known from its
    completion on, is when its result came. `radius` names the schedule that says how many targets
    it may touch, if one does. `timeout` is how long it may take (ns), as the entry `timeout_by`
    says. `marks` are its limits, with their trackers and what they gave for it when it was
    admitted.

    Most calls have most of this empty: what is not set stands in the class.
    """

    id = ""
    server = ""
    batch = ""
    tags: Mapping[str, Any] = NOTHING
    hints: Mapping[str, bool] = NOTHING
    estimate: Mapping[str, float] = NOTHING
    class_ = ""
    fingerprint = ""
    exact = ""
    like = ""
    numbers: tuple[float, ...] = ()
    previous: Mapping[str, Any] = NOTHING
    targets: tuple[str, ...] = ()
    changing = True
    keys: Mapping[str, str] = NOTHING
    charges: tuple[Charge, ...] = ()
    asks: tuple[Charge, ...] = ()
    insisted: tuple[Charge, ...] = ()
    faults: tuple[Fault, ...] = ()
    trials: tuple[str, ...] = ()
    radius = ""
    timeout: int | None = None
    timeout_by = ""
    ended: int | None = None
    marks: list[tuple[Limit, Any, Any]]
    session: SessionState
    ground: Ground

    _view: View | None = None
    _seen: int | None

    def __init__(self, tool: str, args: dict[str, Any], at: int | None) -> None:
        self.tool = tool
        self.args = args
        self.at = at
        self._seen = at

    @property
    def view(self) -> View:
        """What expressions see of it."""
        view = self._view
        if view is None:
            view = self._view = View(self, self.ground, self._seen)
        return view

    @property
    def own(self) -> str:
        """The fingerprint of exactly this call: what somebody says yes to."""
        return self.exact or self.fingerprint

    @property
    def views(self) -> bool:
        """Whether an expression has looked at it."""
        return self._view is not None

    def look_again(self, at: int | None) -> None:
        """Its result has come, at `at` (ns): expressions see the call as it is now."""
        self._view = None
        self._seen = self.ended = at
        self.faults = ()

    def fault(self, entry: str, error: Exception | str) -> None:
        """An expression of an entry failed on this call."""
        self.faults = (*self.faults, Fault(entry, str(error)))

    def at_most(self, timeout: int, by: str) -> None:
        """The call may take no longer than this (ns); the shortest such time holds."""
        if self.timeout is None or timeout < self.timeout:
            self.timeout = timeout
            self.timeout_by = by
