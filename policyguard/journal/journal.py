"""The journal: all events of a process, each in its session's file."""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from policyguard.engines.operating_system import after_fork_in_child
from policyguard.journal.chain import Hasher
from policyguard.journal.errors import JournalError
from policyguard.journal.findings import VerifyFinding
from policyguard.journal.folder import file_name
from policyguard.journal.format import encode_bounded
from policyguard.journal.handover import lacks_lines, read_lines
from policyguard.journal.journal_file import JournalFile, has_all_anchors
from policyguard.journal.left_over import is_left_over
from policyguard.journal.line_template import LineTemplate, parse_template
from policyguard.journal.reader import read_events
from policyguard.journal.redaction import Redactions
from policyguard.model.event import Approved, Event, Granted, Refused, SessionEnded, TurnStarted
from policyguard.model.text import escape_surrogates
from policyguard.store.errors import SessionBusyError, StoreError
from policyguard.store.paths import ensure_private_folder
from policyguard.store.protocol import Anchor, AnchorStore, SharedAnchorStore

_ANCHORED_EVENTS = frozenset({Refused, TurnStarted, SessionEnded, Approved, Granted})


class Journal:
    """A log of events, each written before `write` returns. Use it from one thread at a time.

    `redactions` are applied to events. A written event survives the death of the process, with
    `sync` also power loss. With a `key`, no one else can forge a chain. `monotonic` returns
    nanoseconds. `on_finding` receives a session and what opening its file repaired.
    `current_file` is public for callers that write template lines themselves. `on_lost` receives
    a session that another host has opened meanwhile, as soon as its anchor is refused.

    After a fork the child may write only sessions that the parent had not opened.
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
        on_finding: Callable[[str, VerifyFinding], None] | None = None,
    ) -> None:
        """Create the folder (0700) if needed. Raises `JournalError`."""
        self.folder = Path(folder)
        self._anchors = anchors
        self._redactions = redactions
        self._sync = sync
        self.max_field_bytes = max_field_bytes
        self._max_open_files = max_open_files
        self._hasher = Hasher(key)
        self._monotonic = monotonic
        self._on_finding = on_finding if on_finding is not None else _ignore_finding
        self.on_lost: Callable[[str], None] = _ignore_lost
        self._files: OrderedDict[str, JournalFile] = OrderedDict()
        self.current_file: JournalFile | None = None
        self._parent_sessions: frozenset[str] = frozenset()
        try:
            ensure_private_folder(self.folder)
        except StoreError as error:
            raise JournalError(error.path, error.reason, error.remedy) from None
        _instances.add(self)

    def path_of(self, session: str) -> Path:
        """Return the path of a session's file."""
        return self.folder / file_name(escape_surrogates(session))

    def write(self, event: Event, anchor: bool = False) -> None:
        """Write an event; with `anchor`, save the anchor at once.

        Raises `JournalError` if the event was not written, and `StoreError` if it was written but
        not anchored.
        """
        event_type = event.__class__
        line, masked = self._encode(event)
        file = self.current_file
        if file is None or file.session != event.session:
            file = self.switch_to(event.session)
        try:
            file.append(line[:-1].decode(), masked, anchor or event_type in _ANCHORED_EVENTS)
        finally:
            # Even if not anchored, so that another process can continue.
            if event_type is SessionEnded:
                self._discard(file)

    def line_template(self, event: Event) -> LineTemplate | None:
        """Return the template for such events (see `policyguard.journal.line_template`).

        Return None if more than the gaps varies, or if nothing in them is redacted.
        """
        line, masked = self._encode(event)
        return parse_template(line) if masked else None

    def switch_to(self, session: str) -> JournalFile:
        """Make the session's file current, closing the least recently used if too many are open.

        Raises `JournalError`.
        """
        self.current_file, files = None, self._files
        if session in files:
            files.move_to_end(session)
        else:
            while len(files) >= self._max_open_files:
                _, oldest = files.popitem(last=False)
                with suppress(SessionBusyError):  # `on_lost` has it
                    self._anchor_and_close(oldest)
            files[session] = self._open(session)
        self.current_file = file = files[session]
        return file

    def read_events(self, session: str) -> Iterator[Event]:
        """Yield a session's events as written; none without a journal.

        Redacted arguments are None. They are those in the store where another host went on, and
        none where another has deleted the journal.
        Raises `AlteredError` if the chain is broken or ends before the
        anchor, `JournalError` if it cannot be read.
        """
        name = escape_surrogates(session)
        path, anchors = self.path_of(name), self._anchors
        anchor = anchors.get(name)
        lines = None
        if isinstance(anchors, SharedAnchorStore):
            if anchor is None and is_left_over(path, anchors):
                return iter(())
            if anchor is not None and lacks_lines(path, anchor):
                lines = read_lines(anchors.lines(name), anchor.size)  # those of another host
        return read_events(
            path,
            name,
            anchor,
            self._hasher,
            has_all_anchors=has_all_anchors(anchors, anchor, self._hasher),
            lines=lines,
        )

    def find_elsewhere(self) -> Iterator[Anchor]:
        """Yield the anchors of sessions whose last lines another host has. Raises `StoreError`."""
        if isinstance(self._anchors, SharedAnchorStore):
            for anchor in self._anchors.all():
                if lacks_lines(self.path_of(anchor.session), anchor):
                    yield anchor

    def stored_lines(self, anchor: Anchor) -> Iterator[bytes]:
        """Yield the lines of a session that the store has. Raises `StoreError`."""
        if isinstance(self._anchors, SharedAnchorStore):
            yield from read_lines(self._anchors.lines(anchor.session), anchor.size)

    @property
    def is_shared(self) -> bool:
        """Whether other hosts may go on with its sessions."""
        return isinstance(self._anchors, SharedAnchorStore)

    def anchor_all(self) -> None:
        """Anchor what is not yet. Raises `StoreError` if the store fails."""
        for file in [*self._files.values()]:
            with suppress(SessionBusyError):  # `on_lost` has it
                file.anchor_rest()

    def require_store(self, session: str) -> None:
        """Raise `StoreError` if a store that hosts share does not answer."""
        if self.is_shared:
            self._anchors.get(session)

    def confirm(self, session: str) -> None:
        """Anchor a session's lines at once where another host may have gone on with it.

        Raises `SessionBusyError` if one has, `StoreError` if that cannot be known.
        """
        if self.is_shared:
            self.switch_to(session).anchor()

    def close_session(self, session: str) -> None:
        """Anchor and close the file of a session, which another process may then go on with."""
        file = self._files.pop(session, None)
        if file is not None:
            self.current_file = None
            self._anchor_and_close(file)

    def abandon_session(self, session: str) -> None:
        """Close the file of a session without anchoring it: another process goes on with it."""
        file = self._files.get(session)
        if file is not None:
            self._discard(file)

    def close(self) -> None:
        """Anchor and close all files. The journal may be used again."""
        self.current_file = None
        while self._files:
            _, file = self._files.popitem()
            self._anchor_and_close(file)

    def _encode(self, event: Event) -> tuple[bytes, bool]:
        """Encode the redacted event; also return whether anything was masked."""
        redact = self._redactions.get(event.__class__)
        redacted = event if redact is None else redact(event)
        line, reduced = encode_bounded(redacted, self.max_field_bytes)
        return line, reduced or redacted is not event

    def _discard(self, file: JournalFile) -> None:
        """Close a session's file without anchoring it."""
        self.current_file = None
        self._files.pop(file.session, None)
        file.close()

    def _open(self, session: str) -> JournalFile:
        if session in self._parent_sessions:
            raise JournalError(
                self.path_of(session),
                "belongs to the process that this one was forked from",
                "use another session id in the child",
            )
        if len(session) > self.max_field_bytes:  # lines would truncate it
            raise JournalError(
                self.path_of(session),
                f"the session id has {len(session):,} characters",
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
            on_lost=self._note_lost,
        )

    def _note_lost(self, session: str) -> None:
        self.on_lost(session)

    def _anchor_and_close(self, file: JournalFile) -> None:
        try:
            file.anchor()
        finally:
            file.close()

    def after_fork_in_child(self) -> None:
        """Leave the files to the parent; closing them here keeps its locks."""
        self.current_file = None
        self._parent_sessions |= frozenset(self._files)
        for file in self._files.values():
            file.close()
        self._files.clear()


def _ignore_finding(session: str, finding: VerifyFinding) -> None:
    """Ignore a finding: it is not an error."""


def _ignore_lost(session: str) -> None:
    """Ignore that a session is another host's now: the error says so."""


_instances: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    for journal in list(_instances):
        journal.after_fork_in_child()


after_fork_in_child(_after_fork)
