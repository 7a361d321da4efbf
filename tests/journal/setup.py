"""Small journals for tests: a store, a folder, and a run with most types of events."""

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
    Completed,
    Event,
    Refused,
    Released,
    SessionEnded,
    SessionStarted,
    Spent,
    TurnStarted,
)
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import AnchorStore, Caps

CAPS = Caps(constraints=100, grants=100, evidence=100, anchors=100_000)
NO_REDACTIONS: Redactions = MappingProxyType({})
SECOND = 1_000_000_000
BEGIN = 1_755_500_000 * SECOND


class JournalSetup:
    """A journal with a clock that tests advance, so that they control anchors."""

    def __init__(
        self,
        folder: Path,
        *,
        anchors: AnchorStore | None = None,
        redactions: Redactions = NO_REDACTIONS,
        **options: Any,
    ) -> None:
        self.anchors: AnchorStore = anchors or MemoryStore(caps=CAPS).anchors
        self.now = 0
        self.findings: list[VerifyFinding] = []
        self.folder = folder / "journal"
        self.redactions = redactions
        self.options = options
        self.journal = self.reopen()

    def reopen(self) -> Journal:
        """Return a new journal on the same folder and anchors, as after a restart."""
        settings: dict[str, Any] = {"sync": False, "max_field_bytes": 10_000, "max_open_files": 8}
        return Journal(
            self.folder,
            self.anchors,
            redactions=self.redactions,
            monotonic=lambda: self.now,
            on_finding=lambda _, finding: self.findings.append(finding),
            **{**settings, **self.options},
        )

    def write(self, *events: Event) -> None:
        """Write events."""
        for event in events:
            self.journal.write(event)

    def restart(self) -> None:
        """Imitate the death of the process, which anchors nothing, and a restart."""
        self.journal.after_fork_in_child()  # closes the files and nothing else
        self.journal = self.reopen()
        self.findings.clear()

    def lines(self, session: str = "s") -> list[bytes]:
        """Return the lines of the session's file, with line feeds."""
        return self.journal.path_of(session).read_bytes().splitlines(keepends=True)


def run(session: str = "s", *, close: bool = True) -> list[Event]:
    """Return a short run, with one event of most types."""
    clock = itertools.count(BEGIN, SECOND)
    events: list[Callable[[int], Event]] = [
        lambda at: SessionStarted(session, at, agent="coder", cwd="/repo"),
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
        events.append(lambda at: SessionEnded(session, at, success=True))
    return [make(next(clock)) for make in events]
