"""Deletes journals that are due: when a guard is loaded, and again while it opens sessions."""

from __future__ import annotations

import threading
from pathlib import Path

from policyguard.guard.clock import SteadyClock
from policyguard.guard.host_log import log_failure, warn
from policyguard.journal.chain import Hasher
from policyguard.journal.errors import JournalError
from policyguard.journal.findings import format_time
from policyguard.journal.retention import note_load, prune
from policyguard.journal.retention_terms import Retention
from policyguard.store.errors import StoreError
from policyguard.store.protocol import Store

_PARTS = 10
"""Journals are deleted at most a tenth of `keep_for`, and of `bounds.journals`, too late."""


class JournalRetention:
    """What a policy says on keeping journals, applied to their folder."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        retention: Retention,
        hasher: Hasher,
        steady_clock: SteadyClock,
    ) -> None:
        self._folder = folder
        self._store = store
        self._retention = retention
        self._hasher = hasher
        self._steady_clock = steady_clock
        self._interval = min(retention.keep_for // _PARTS, retention.max_gap // 2)
        self._next_run = 0
        self._opened = 0
        self._reported: frozenset[str] = frozenset()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def apply(self) -> None:
        """Delete journals that are due; log once which were kept nevertheless.

        Raises `JournalError` or `StoreError`.
        """
        now, retention = self._read_time(), self._retention
        self._next_run, self._opened = now + self._interval, 0
        trusted_since = note_load(self._store.anchors, now, retention).trusted_since
        before: int | None = now - retention.keep_for
        found: list[str] = []
        if trusted_since is not None:
            before = None
            found.append(
                f"{self._folder}: no journal is deleted by its age until "
                f"{format_time(trusted_since + retention.keep_for)}, since the clock made an "
                f"implausible step to {format_time(trusted_since)} (`journal.max_gap`); if the "
                "time is right and they should go now: policyguard journal prune"
            )
        result = prune(
            self._folder,
            self._store.anchors,
            retention,
            now=now,
            before=before,
            hasher=self._hasher,
            lock_session=self._store.lock_session,
            should_stop=self._stop.is_set,
        )
        found += [f"a journal that is due was not deleted: {error}" for error in result.kept]
        for message in found:
            if message not in self._reported:
                warn(message)
        self._reported = frozenset(found)

    def note_opened(self) -> None:
        """Note that a session was opened; where it is time to, apply this in the background."""
        self._opened += 1
        now = self._read_time()
        is_due = now >= self._next_run or self._opened * _PARTS >= self._retention.max_journals
        if not is_due or self._stop.is_set() or (self._thread and self._thread.is_alive()):
            return
        self._next_run, self._opened = now + self._interval, 0
        self._thread = threading.Thread(
            target=self._apply_logged, name="policyguard-retention", daemon=True
        )
        self._thread.start()

    def _read_time(self) -> int:
        """Return the earlier of the steady and the wall clock's time (ns since 1970, UTC)."""
        at, wall = self._steady_clock.read()
        return at if wall is None else min(at, wall)

    def _apply_logged(self) -> None:
        try:
            self.apply()
        except (JournalError, StoreError):
            log_failure(f"{self._folder}: journals that are due could not be deleted")

    def close(self) -> None:
        """Stop, after the journal that is being looked at."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
