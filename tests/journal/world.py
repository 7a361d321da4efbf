"""Small journals for tests: a store, a folder, and a run with every kind of line in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from policyguard.journal.findings import VerifyFinding
from policyguard.journal.journal import Journal
from policyguard.journal.redaction import Redactions
from policyguard.model.event import (
    Admitted,
    Closed,
    Completed,
    Event,
    Refused,
    Released,
    Spent,
    Started,
    TurnStarted,
)
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import AnchorStore, Caps

CAPS = Caps(constraints=100, evidence=100, anchors=100_000)
NOTHING_HIDDEN: Redactions = MappingProxyType({})
SECOND = 1_000_000_000
BEGIN = 1_755_500_000 * SECOND


class World:
    """A journal whose clock stands still, so that anchors come when a test wants them."""

    def __init__(
        self,
        folder: Path,
        *,
        anchors: AnchorStore | None = None,
        redact: Redactions = NOTHING_HIDDEN,
        **more: Any,
    ) -> None:
        self.anchors: AnchorStore = anchors or MemoryStore(caps=CAPS).anchors
        self.now = 0
        self.reported: list[VerifyFinding] = []
        self.folder = folder / "journal"
        self.redact = redact
        self.more = more
        self.journal = self.opened()

    def opened(self) -> Journal:
        """A new journal on the same folder and anchors, as after a restart."""
        settings: dict[str, Any] = {"sync": False, "largest": 10_000, "open_files": 8}
        return Journal(
            self.folder,
            self.anchors,
            redactions=self.redact,
            monotonic=lambda: self.now,
            on_finding=self.reported.append,
            **{**settings, **self.more},
        )

    def write(self, *events: Event) -> None:
        """Write events down."""
        for event in events:
            self.journal.write(event)

    def restart(self) -> None:
        """The process dies, and another goes on: nothing is anchored on the way."""
        self.journal.after_fork_in_child()  # closes the files and nothing else
        self.journal = self.opened()
        self.reported.clear()

    def lines(self, session: str = "s") -> list[bytes]:
        """The session's file, line by line, with line feeds."""
        return self.journal.path_of(session).read_bytes().splitlines(keepends=True)


def run(session: str = "s", *, close: bool = True) -> list[Event]:
    """A short run, with one event of most kinds."""
    clock = itertools.count(BEGIN, SECOND)
    made: list[Callable[[int], Event]] = [
        lambda at: Started(session, at, agent="coder", cwd="/repo"),
        lambda at: TurnStarted(session, at),
        lambda at: Admitted(
            session, at, "c1", "bash", {"command": "pytest -q"}, fingerprint="f1", class_="shell"
        ),
        lambda at: Completed(session, at, "c1", ok=False, text="1 failed", exit_code=1),
        lambda at: Spent(session, at, tokens=10, cost=0.5),
        lambda at: Admitted(session, at, "c2", "read", {"path": "ä\n.txt"}, fingerprint="f2"),
        lambda at: Released(session, at, "c2"),
        lambda at: Refused(session, at, "c3", "bash", {"command": "rm"}, violations=("rules/no",)),
        lambda at: Admitted(session, at, "c4", "read", {"path": "b.txt"}, fingerprint="f4"),
    ]
    if close:
        made.append(lambda at: Closed(session, at, success=True))
    return [make(next(clock)) for make in made]
