"""The calls that wait in sessions that are not open here: in their journals they wait too."""

from __future__ import annotations

import mmap
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.evaluator_state import EvaluatorState, TransitionHooks
from policyguard.evaluator.fold import rebuild
from policyguard.evaluator.session_state import SessionState
from policyguard.guard.approvals.questions import open_questions
from policyguard.journal.chain import decode_session
from policyguard.journal.errors import JournalError
from policyguard.journal.folder import is_journal_name
from policyguard.journal.journal import Journal
from policyguard.model.question import OpenQuestion
from policyguard.store.errors import StoreError

_ASKED = b'"effect":"ask"'


class _Read(msgspec.Struct, frozen=True):
    """What was found in a journal as it was then; `state` is None if nothing waits there."""

    version: object
    session: str
    state: SessionState | None


class ClosedSessions:
    """Reads journals for calls that wait. What has not changed is not read again.

    Nothing is opened: another process may own the session.
    """

    def __init__(self, journal: Journal, evaluator: Evaluator) -> None:
        self._journal = journal
        self._evaluator = evaluator
        self._read: dict[str, _Read] = {}
        self._elsewhere: dict[str, _Read] = {}

    def questions(
        self, is_open: Callable[[str], bool], at: int, redact: Callable[[str], str]
    ) -> Iterator[OpenQuestion]:
        """Yield the calls that wait at `at` (ns), but for those of open sessions.

        A journal that cannot be read, or was altered, has none: opening its session says why. Of
        sessions that other hosts have, the store's lines are read.
        """
        here = [self._read[file.name] for file in self._files()]
        try:
            elsewhere = self._find_elsewhere()
        except StoreError:  # which the next decision says
            elsewhere = {}
        sessions = {found.session for found in elsewhere.values()}
        for found in (*(one for one in here if one.session not in sessions), *elsewhere.values()):
            if found.state is not None and not is_open(found.session):
                yield from open_questions(self._evaluator, found.state, at, redact)

    def _files(self) -> list[Path]:
        """Return the journals, each read since it was last changed, the latest last."""
        known: dict[str, _Read] = {}
        files: list[tuple[int, Path]] = []
        folder = self._journal.folder
        for file in folder.iterdir() if folder.is_dir() else ():
            try:
                status = file.lstat()
            except OSError:  # removed meanwhile
                continue
            if not (is_journal_name(file) and stat.S_ISREG(status.st_mode)):
                continue
            version = (status.st_mtime_ns, status.st_size)
            read = self._read.get(file.name)
            if read is None or read.version != version:
                read = self._read_file(file, version)
            known[file.name] = read
            files.append((status.st_mtime_ns, file))
        self._read = known
        return [file for _, file in sorted(files)]

    def _find_elsewhere(self) -> dict[str, _Read]:
        """Return the sessions that other hosts have, each read since it went on."""
        known: dict[str, _Read] = {}
        for anchor in self._journal.find_elsewhere():
            read = self._elsewhere.get(anchor.session)
            if read is None or read.version != anchor:
                asks = any(_ASKED in line for line in self._journal.stored_lines(anchor))
                read = self._read_session(anchor.session, anchor) if asks else None
            known[anchor.session] = read or _Read(anchor, anchor.session, None)
        self._elsewhere = known
        return known

    def _read_file(self, file: Path, version: tuple[int, int]) -> _Read:
        session = _find_session(file)
        return self._read_session(session, version) if session else _Read(version, "", None)

    def _read_session(self, session: str, version: object) -> _Read:
        marks = self._evaluator.new_mark_states()
        state = EvaluatorState(TransitionHooks(), self._evaluator.bounds.grants, marks)
        try:
            for event in self._journal.read_events(session):
                rebuild(self._evaluator, state, event)
        except (JournalError, StoreError):
            return _Read(version, session, None)
        found = state.sessions.get(session)
        waits = found is not None and bool(found.approvals.requests)
        return _Read(version, session, found if waits else None)


def _find_session(file: Path) -> str:
    """Return the session of a journal in which something asks; empty if nothing does."""
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as m:
            if m.find(_ASKED) < 0:
                return ""
            return decode_session(m[: m.find(b"\n") + 1]) or ""
    except (OSError, ValueError):  # also empty files
        return ""
