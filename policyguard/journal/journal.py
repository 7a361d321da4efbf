"""The journal: every event of every session of a process, each in its session's file."""

from __future__ import annotations

import os
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

from policyguard.journal.chain import Hasher
from policyguard.journal.errors import JournalError
from policyguard.journal.finding import Finding
from policyguard.journal.fit import fitted
from policyguard.journal.form import Form, cut
from policyguard.journal.names import file_name
from policyguard.journal.reading import events
from policyguard.journal.redact import Redactions
from policyguard.journal.writer import Writer
from policyguard.model.event import Closed, Event, Refused, TurnStarted
from policyguard.store.errors import StoreError
from policyguard.store.place import private_folder
from policyguard.store.protocol import Anchors
from policyguard.store.text import well_formed

_ANCHORED = frozenset({Refused, TurnStarted, Closed})
"""What is worth an anchor of its own."""


class Journal:
    """Writes events down, in order, each before `write` returns. One thread at a time may use it.

    `anchors` is the store's. `redact` says what is written of an event. What is written survives
    the death of the process, with `sync` a loss of power too. `key`: hashes are made with it, so
    that only who has it can make a chain that holds. `largest` bounds what one field may take, in
    bytes; `open_files` how many files are open at once. `monotonic` gives nanoseconds. `report` is
    told what opening a file found (a torn line, unanchored lines). `latest` is the file that was
    turned to last: who fills in forms writes into it by himself.

    A session belongs to the process that opened it: after a fork the child may write sessions
    that the parent had not opened, and no others.
    """

    def __init__(
        self,
        folder: str | Path,
        anchors: Anchors,
        *,
        redact: Redactions,
        sync: bool,
        largest: int,
        open_files: int,
        key: bytes | None = None,
        monotonic: Callable[[], int] = time.monotonic_ns,
        report: Callable[[Finding], None] | None = None,
    ) -> None:
        """Make the folder (0700). Raises `JournalError`."""
        self.folder = Path(folder)
        self._anchors = anchors
        self._redact = redact
        self._sync = sync
        self.largest = largest
        self._open_files = open_files
        self._hasher = Hasher(key)
        self._monotonic = monotonic
        self._report = report if report is not None else _unreported
        self._writers: OrderedDict[str, Writer] = OrderedDict()
        self.latest: Writer | None = None
        self._parents: frozenset[str] = frozenset()
        try:
            private_folder(self.folder)
        except StoreError as error:
            raise JournalError(error.place, error.reason, error.remedy) from None
        _journals.add(self)

    def path(self, session: str) -> Path:
        """Where a session's events are written."""
        return self.folder / file_name(well_formed(session))

    def write(self, event: Event, anchor: bool = False) -> None:
        """Write one event down; with `anchor`, tell the store at once how far the file reaches.

        Raises `JournalError` where the event could not be written (then nothing of it was), and
        `StoreError` where it was written and could not be anchored.
        """
        kind = event.__class__
        line, masked = self._told(event)
        writer = self.latest
        if writer is None or writer.session != event.session:
            writer = self.turned_to(event.session)
        try:
            writer.append(line[:-1].decode(), masked, anchor or kind in _ANCHORED)
        finally:
            if kind is Closed:  # also one that could not be anchored: who is next may go on
                self._drop(writer)

    def form(self, event: Event) -> Form | None:
        """What the lines of such events have in common (see `journal.form`).

        None where they have not enough of it: where more than the marks differs, or where nothing
        is hidden of them.
        """
        line, masked = self._told(event)
        return cut(line) if masked else None

    def turned_to(self, session: str) -> Writer:
        """The session's file: of those that are open, the last to be closed for others' sake.

        Raises `JournalError`.
        """
        self.latest, writers = None, self._writers
        if session in writers:
            writers.move_to_end(session)
        else:
            while len(writers) >= self._open_files:
                _, oldest = writers.popitem(last=False)
                self._shut(oldest)
            writers[session] = self._opened(session)
        self.latest = writer = writers[session]
        return writer

    def events(self, session: str) -> Iterator[Event]:
        """The session's events as they were written; none where there is no journal of it.

        What was redacted is not there: arguments are None. Raises `AlteredError` where the chain
        does not hold or does not reach the anchor, `JournalError` where it cannot be read.
        """
        name = well_formed(session)
        anchor = self._anchors.get(name)
        return events(self.folder / file_name(name), name, anchor, self._hasher)

    def close(self) -> None:
        """Anchor and close all files. The journal may be used again."""
        self.latest = None
        while self._writers:
            _, writer = self._writers.popitem()
            self._shut(writer)

    def _told(self, event: Event) -> tuple[bytes, bool]:
        """What is written of an event, as JSON; and whether that is not all of it."""
        redact = self._redact.get(event.__class__)
        told = event if redact is None else redact(event)
        line, reduced = fitted(told, self.largest)
        return line, reduced or told is not event

    def _drop(self, writer: Writer) -> None:
        """Close a session's file as it is."""
        self.latest = None
        self._writers.pop(writer.session, None)
        writer.close()

    def _opened(self, session: str) -> Writer:
        if session in self._parents:
            raise JournalError(
                self.path(session),
                "belongs to the process that this one was forked from",
                "open a session of another id in the child",
            )
        if len(session) > self.largest:  # each line would have it cut, and be another's
            raise JournalError(
                self.path(session),
                f"is of a session whose id has {len(session):,} characters",
                f"use an id of at most {self.largest:,} (`bounds.argument_bytes`)",
            )
        return Writer(
            self.path(session),
            session,
            anchors=self._anchors,
            hasher=self._hasher,
            sync=self._sync,
            report=self._report,
            monotonic=self._monotonic,
            lost=self._drop,
        )

    def _shut(self, writer: Writer) -> None:
        try:
            writer.anchor()
        finally:
            writer.close()

    def after_fork_in_child(self) -> None:
        """The files stay the parent's: closing them here leaves its locks alone."""
        self.latest = None
        self._parents |= frozenset(self._writers)
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


def _unreported(finding: Finding) -> None:
    """Findings on opening are no errors, and `verify` reports what can still be seen of them."""


_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    for journal in list(_journals):
        journal.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork)
