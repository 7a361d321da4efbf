"""A call on its way through the evaluator."""

from __future__ import annotations

from typing import Any

from policyguard.model.decision import Fault
from policyguard.model.event import Charge


class Attempt:
    """What is known of a call before it runs, once it has been classified.

    `keys` holds, for each limit that tells sameness by something else than the fingerprint, what
    it tells it by; `charges` what the call takes from budgets at admission. `at` is nanoseconds
    or None (a record without time); `ended`, known from its completion on, is when its result
    came. `radius` names the schedule that says how many targets it may touch, if one does.
    `asks` are the charges of budgets that an approval raises, `insisted` those of budgets whose
    steps count attempts. `timeout` is how long it may take (ns), as the entry `timeout_by` says.
    """

    __slots__ = (
        "args",
        "asks",
        "at",
        "batch",
        "changing",
        "charges",
        "class_",
        "ended",
        "estimate",
        "faults",
        "fingerprint",
        "hints",
        "id",
        "insisted",
        "keys",
        "like",
        "numbers",
        "previous",
        "radius",
        "server",
        "tags",
        "targets",
        "timeout",
        "timeout_by",
        "tool",
        "trials",
    )

    id: str
    tool: str
    args: dict[str, Any]
    server: str
    batch: str
    tags: dict[str, Any]
    hints: dict[str, bool]
    estimate: dict[str, float]
    at: int | None
    class_: str
    fingerprint: str
    like: str
    numbers: tuple[float, ...]
    previous: dict[str, Any]
    targets: tuple[str, ...]
    changing: bool
    keys: dict[str, str]
    charges: list[Charge]
    asks: list[Charge]
    insisted: list[Charge]
    faults: list[Fault]
    trials: tuple[str, ...]
    radius: str
    ended: int | None
    timeout: int | None
    timeout_by: str

    def at_most(self, timeout: int, by: str) -> None:
        """The call may take no longer than this (ns); the shortest such time holds."""
        if self.timeout is None or timeout < self.timeout:
            self.timeout = timeout
            self.timeout_by = by
