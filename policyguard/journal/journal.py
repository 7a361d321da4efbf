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
from policyguard.journal.event_encoding import encode_bounded
from policyguard.journal.file_names import file_name
from policyguard.journal.findings import VerifyFinding
from policyguard.journal.journal_file import JournalFile
from policyguard.journal.line_template import LineTemplate, parse_template
from policyguard.journal.reader import read_events
from policyguard.journal.redaction import Redactions
from policyguard.model.event import Closed, Event, Refused, TurnStarted
from policyguard.model.text import escape_surrogates
from policyguard.store.errors import StoreError
from policyguard.store.paths import ensure_private_folder
from policyguard.store.protocol import AnchorStore

_ANCHORED_EVENTS = frozenset({Refused, TurnStarted, Closed})
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
        anchors: AnchorStore,
        *,
        redactions: Redactions,
        sync: bool,
        max_field_bytes: int,
        max_open_files: int,
        key: bytes | None = None,
        monotonic: Callable[[], int] = time.monotonic_ns,
        on_finding: Callable[[VerifyFinding], None] | None = None,
    ) -> None:
        """Make the folder (0700). Raises `JournalError`."""
        self.folder = Path(folder)
        self._anchors = anchors
        self._redactions = redactions
        self._sync = sync
        self.max_field_bytes = max_field_bytes
        self._max_open_files = max_open_files
        self._hasher = Hasher(key)
        self._monotonic = monotonic
        self._on_finding = on_finding if on_finding is not None else _ignore_finding
        self._files: OrderedDict[str, JournalFile] = OrderedDict()
        self.current_file: JournalFile | None = None
        self._parent_sessions: frozenset[str] = frozenset()
        try:
            ensure_private_folder(self.folder)
        except StoreError as error:
            raise JournalError(error.path, error.reason, error.remedy) from None
        _instances.add(self)

    def path_of(self, session: str) -> Path:
        """Where a session's events are written."""
        return self.folder / file_name(escape_surrogates(session))

    def write(self, event: Event, anchor: bool = False) -> None:
        """Write one event down; with `anchor`, tell the store at once how far the file reaches.

        Raises `JournalError` where the event could not be written (then nothing of it was), and
        `StoreError` where it was written and could not be anchored.
        """
        kind = event.__class__
        line, masked = self._encode(event)
        writer = self.current_file
        if writer is None or writer.session != event.session:
            writer = self.switch_to(event.session)
        try:
            writer.append(line[:-1].decode(), masked, anchor or kind in _ANCHORED_EVENTS)
        finally:
            if kind is Closed:  # also one that could not be anchored: who is next may go on
                self._discard(writer)

    def line_template(self, event: Event) -> LineTemplate | None:
        """What the lines of such events have in common (see `journal.form`).

        None where they have not enough of it: where more than the marks differs, or where nothing
        is hidden of them.
        """
        line, masked = self._encode(event)
        return parse_template(line) if masked else None

    def switch_to(self, session: str) -> JournalFile:
        """The session's file: of those that are open, the last to be closed for others' sake.

        Raises `JournalError`.
        """
        self.current_file, writers = None, self._files
        if session in writers:
            writers.move_to_end(session)
        else:
            while len(writers) >= self._max_open_files:
                _, oldest = writers.popitem(last=False)
                self._anchor_and_close(oldest)
            writers[session] = self._open(session)
        self.current_file = writer = writers[session]
        return writer

    def read_events(self, session: str) -> Iterator[Event]:
        """The session's events as they were written; none where there is no journal of it.

        What was redacted is not there: arguments are None. Raises `AlteredError` where the chain
        does not hold or does not reach the anchor, `JournalError` where it cannot be read.
        """
        name = escape_surrogates(session)
        anchor = self._anchors.get(name)
        return read_events(self.folder / file_name(name), name, anchor, self._hasher)

    def close_session(self, session: str) -> None:
        """Anchor and close the file of a session, which another process may then go on with."""
        file = self._files.pop(session, None)
        if file is not None:
            self.current_file = None
            self._anchor_and_close(file)

    def close(self) -> None:
        """Anchor and close all files. The journal may be used again."""
        self.current_file = None
        while self._files:
            _, writer = self._files.popitem()
            self._anchor_and_close(writer)

    def _encode(self, event: Event) -> tuple[bytes, bool]:
        """What is written of an event, as JSON; and whether that is not all of it."""
        redact = self._redactions.get(event.__class__)
        told = event if redact is None else redact(event)
        line, reduced = encode_bounded(told, self.max_field_bytes)
        return line, reduced or told is not event

    def _discard(self, file: JournalFile) -> None:
        """Close a session's file as it is."""
        self.current_file = None
        self._files.pop(file.session, None)
        file.close()

    def _open(self, session: str) -> JournalFile:
        if session in self._parent_sessions:
            raise JournalError(
                self.path_of(session),
                "belongs to the process that this one was forked from",
                "open a session of another id in the child",
            )
        if len(session) > self.max_field_bytes:  # each line would have it cut, and be another's
            raise JournalError(
                self.path_of(session),
                f"is of a session whose id has {len(session):,} characters",
                f"use an id of at most {self.max_field_bytes:,} (`bounds.argument_bytes`)",
            )
        return JournalFile(
            self.path_of(session),
            session,
            anchors=self._anchors,
            hasher=self._hasher,
            sync=self._sync,
            on_finding=self._on_finding,
            monotonic=self._monotonic,
            on_failure=self._discard,
        )

    def _anchor_and_close(self, file: JournalFile) -> None:
        try:
            file.anchor()
        finally:
            file.close()

    def after_fork_in_child(self) -> None:
        """The files stay the parent's: closing them here leaves its locks alone."""
        self.current_file = None
        self._parent_sessions |= frozenset(self._files)
        for writer in self._files.values():
            writer.close()
        self._files.clear()


def _ignore_finding(finding: VerifyFinding) -> None:
    """Findings on opening are no errors, and `verify` reports what can still be seen of them."""


_instances: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    for journal in list(_instances):
        journal.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork)
