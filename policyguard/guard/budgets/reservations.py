"""What running calls hold of shared quotas."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.store.quota.protocol import Quota


class Reservation(msgspec.Struct, frozen=True):
    """An amount of a quota that a running call holds."""

    quota: Quota
    amount: int
    is_slot: bool


class Reservations:
    """The reservations of all running calls."""

    def __init__(self) -> None:
        self._by_call: dict[tuple[str, str], Sequence[Reservation]] = {}

    def hold(self, attempt: Attempt, reserved: Sequence[Reservation]) -> None:
        """Note what an admitted call has reserved."""
        if reserved:
            self._by_call[attempt.session.id, attempt.id] = reserved

    def end(self, attempt: Attempt, *, but_slots: bool = False) -> None:
        """Give back what a call holds; with `but_slots`, it keeps its slots."""
        if not self._by_call:
            return
        call = attempt.session.id, attempt.id
        kept = []
        for reservation in self._by_call.pop(call, ()):
            if but_slots and reservation.is_slot:
                kept.append(reservation)
            else:
                reservation.quota.reserve(-reservation.amount)
        if kept:
            self._by_call[call] = kept
