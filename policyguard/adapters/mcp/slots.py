"""Slots of calls that run at the same time, with a queue of those that wait for one."""

from __future__ import annotations

import asyncio
from collections import deque


class CallSlots:
    """At most `size` calls run at a time, and at most `max_waiting` wait, in their order."""

    def __init__(self, size: int, max_waiting: int) -> None:
        self._free = size
        self._max_waiting = max_waiting
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_take(self) -> bool:
        """Take a slot if one is free and nothing waits for it."""
        if self._free <= 0 or self._waiting:
            return False
        self._free -= 1
        return True

    @property
    def is_full(self) -> bool:
        """Whether a call can neither run nor wait."""
        return self._free <= 0 and len(self._waiting) >= self._max_waiting

    async def take(self) -> None:
        """Wait for a slot, and take it. One who is cancelled gives it on."""
        if self.try_take():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """Give a slot to the one who has waited longest, or keep it free."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
