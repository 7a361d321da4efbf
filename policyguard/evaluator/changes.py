"""When something may last have changed, and by which call.

A repetition is a loop only as long as nothing else has changed the world: a test run again after
an edit is work. A call's own repetitions do not count as change, or no loop of state-changing
calls would ever be seen.

What a session's sub-agents change has changed for it, too. For what it has learned for itself a
new turn is a change as well: the person may have mended what failed, and asks for it again.
"""

from __future__ import annotations


class Changes:
    """Numbers the completions of a session and remembers its last changes of state."""

    __slots__ = ("by", "last", "last_at", "others", "others_at", "seq", "turned", "turned_at")

    def __init__(self) -> None:
        self.seq = 0
        self.by = ""
        self.last = 0
        self.last_at: int | None = None
        self.others = 0
        self.others_at: int | None = None
        self.turned = 0
        self.turned_at: int | None = None

    def note(self, fingerprint: str, at: int | None) -> None:
        """A call that may change state has succeeded at `at` (ns), as completion number `seq`."""
        if fingerprint != self.by:
            self.others = self.last
            self.others_at = self.last_at
            self.by = fingerprint
        self.last = self.seq
        self.last_at = at

    def turn(self, at: int | None) -> None:
        """A new turn has begun at `at` (ns): it has a number of its own among the completions."""
        self.turned = self.seq = self.seq + 1
        self.turned_at = at

    def since(self, fingerprint: str) -> int:
        """The number of the last change that another call than this one made; 0 if never."""
        return self.others if fingerprint == self.by else self.last

    def since_at(self, fingerprint: str) -> int | None:
        """When that change was made (ns); None if never, or where the record has no time."""
        return self.others_at if fingerprint == self.by else self.last_at
