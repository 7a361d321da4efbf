"""When something may last have changed, and by which call.

A repetition is a loop only as long as nothing else has changed the world: a test run again after
an edit is work. A call's own repetitions do not count as change, or no loop of state-changing
calls would ever be seen.

What a session's sub-agents change has changed for it, too. For what it has learned for itself a
new turn is a change as well: the person may have mended what failed, and asks for it again.
"""

from __future__ import annotations


class StateChanges:
    """Numbers the completions of a session and remembers its last changes of state."""

    __slots__ = (
        "last_at",
        "last_fingerprint",
        "last_seq",
        "other_at",
        "other_seq",
        "seq",
        "turn_at",
        "turn_seq",
    )

    def __init__(self) -> None:
        self.seq = 0
        self.last_fingerprint = ""
        self.last_seq = 0
        self.last_at: int | None = None
        self.other_seq = 0
        self.other_at: int | None = None
        self.turn_seq = 0
        self.turn_at: int | None = None

    def record(self, fingerprint: str, at: int | None) -> None:
        """A call that may change state has succeeded at `at` (ns), as completion number `seq`."""
        if fingerprint != self.last_fingerprint:
            self.other_seq = self.last_seq
            self.other_at = self.last_at
            self.last_fingerprint = fingerprint
        self.last_seq = self.seq
        self.last_at = at

    def start_turn(self, at: int | None) -> None:
        """A new turn has begun at `at` (ns): it has a number of its own among the completions."""
        self.turn_seq = self.seq = self.seq + 1
        self.turn_at = at

    def last_change_except(self, fingerprint: str) -> int:
        """The number of the last change that another call than this one made; 0 if never."""
        return self.other_seq if fingerprint == self.last_fingerprint else self.last_seq

    def last_change_time_except(self, fingerprint: str) -> int | None:
        """When that change was made (ns); None if never, or where the record has no time."""
        return self.other_at if fingerprint == self.last_fingerprint else self.last_at
