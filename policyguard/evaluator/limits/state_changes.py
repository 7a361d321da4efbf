"""When the world may last have changed, and by which call.

A repetition is a loop only while nothing else changes the world: a test run again after an edit is
work. A call's own repetitions are not changes, or no loop of state-changing calls would be seen.
Changes by sub-agents are changes for their parents. For what a session has learned for itself, a
new turn is a change too: the user may have fixed what failed.
"""

from __future__ import annotations


class StateChanges:
    """Numbers a session's completions, and remembers its last state changes.

    Calls are known by their likeness. `other_seq` is the last change by another than `last_call`. A
    new turn takes a number of its own, `turn_seq`; `wait_seq` is the last wait. Times are
    nanoseconds.
    """

    # No struct, whose attributes are slow to set: every result sets `seq`.
    __slots__ = (
        "last_at",
        "last_call",
        "last_seq",
        "other_at",
        "other_seq",
        "seq",
        "turn_at",
        "turn_seq",
        "wait_at",
        "wait_seq",
    )

    def __init__(self) -> None:
        self.seq = self.last_seq = self.other_seq = self.turn_seq = self.wait_seq = 0
        self.last_call = ""
        self.last_at: int | None = None
        self.other_at: int | None = None
        self.turn_at: int | None = None
        self.wait_at: int | None = None

    def record(self, call: str, at: int | None) -> None:
        """Record that a state-changing call succeeded, as completion number `seq`."""
        if call != self.last_call:
            self.other_seq = self.last_seq
            self.other_at = self.last_at
            self.last_call = call
        self.last_seq = self.seq
        self.last_at = at

    def start_turn(self, at: int | None) -> None:
        """Number a new turn among the completions."""
        self.turn_seq = self.seq = self.seq + 1
        self.turn_at = at

    def record_wait(self, at: int | None) -> None:
        """Record that completion number `seq` was a wait, in which others may have acted."""
        self.wait_seq, self.wait_at = self.seq, at

    def last_change_except(self, call: str) -> int:
        """Return the number of the last change by another call; 0 for none."""
        return self.other_seq if call == self.last_call else self.last_seq

    def last_change_time_except(self, call: str) -> int | None:
        """Return the time of that change; None for none, or a record without times."""
        return self.other_at if call == self.last_call else self.last_at
