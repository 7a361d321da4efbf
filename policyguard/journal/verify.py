"""Detect tampering: read journals and compare them with their anchors.

Exported anchors, kept elsewhere, are evidence against everyone: an attacker who can write journal
and store cannot change what was written before the export. A file may hold several exports; no
anchor replaces an earlier one, which the attacker may have wanted to hide.

Anchors are read before files: an honest writer writes a line before its anchor, so a file that is
being written is never behind the anchors that were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from policyguard.journal.anchors.comparison import compare_anchors, describe_empty, describe_key
from policyguard.journal.anchors.mac import find_forgery, is_unsigned
from policyguard.journal.chain import (
    BrokenChainError,
    ChainPosition,
    Hasher,
    advance,
    decode_session,
    parse_link,
)
from policyguard.journal.errors import JournalError
from policyguard.journal.findings import (
    VerifyFinding,
    describe_pruning,
    describe_repair,
    describe_unproven,
    describe_unsigned,
    format_time,
    make_finding,
)
from policyguard.journal.folder import SUFFIX, file_name, is_journal_name
from policyguard.journal.handover import place_of
from policyguard.journal.other_hosts import OtherHosts
from policyguard.journal.store_state import StoreState, describe_state, find_evicted
from policyguard.journal.tampering import find_tampering
from policyguard.store.paths import JOURNAL_FOLDER, hide_address
from policyguard.store.protocol import (
    Anchor,
    AnchorStore,
    JournalNote,
    Pruned,
    Repaired,
    SharedAnchorStore,
)

_MAX_FINDINGS = 100
"""The number of findings listed per file."""

_ANCHORED_LINES = (b'{"event":"refused",', b'{"event":"turn_started",')
"""How lines begin whose events are anchored at once (see `journal.journal`)."""
_WITHOUT_ANCHOR = ("journal/no-anchor", "journal/empty")
"""The codes for files without an anchor."""


class VerifyResult(msgspec.Struct, frozen=True):
    """The numbers of files and lines read, and the findings."""

    files: int
    lines: int
    findings: tuple[VerifyFinding, ...]

    @property
    def has_failed(self) -> bool:
        """Whether there is a finding that no honest writer causes."""
        return any(finding.severity == "error" for finding in self.findings)


def verify(
    paths: Sequence[Path],
    *,
    anchors: AnchorStore | None = None,
    exported: Iterable[Anchor | JournalNote] = (),
    key: bytes | None = None,
    store: StoreState | None = None,
) -> VerifyResult:
    """Verify journals: files, and all files in folders.

    `anchors` is the store's; `exported` are earlier anchors, which must all hold, and notes that
    explain some of them; `key` is the key of the hashes; `store` is the state of the store's
    file. For a folder, missing files are found too.
    Raises `StoreError`, and `JournalError` for a missing path or a folder whose journals are in a
    subfolder.
    """
    verifier = _Verifier(anchors, tuple(exported), Hasher(key), is_one=len(paths) == 1)
    # The journal folder of a store counts as a folder even if it was removed as a whole.
    missing = [
        path
        for path in paths
        if verifier.anchors_by_file and path.name == JOURNAL_FOLDER and not path.exists()
    ]
    folders = [path for path in paths if path.is_dir()] + missing
    files = list(_list_files(path for path in paths if path not in missing))
    verifier.add_files(files)
    findings = [finding for file in files for finding in verifier.check(file)]
    if folders:
        findings += verifier.find_missing(folders[0], {file.name for file in files})
        findings += verifier.find_pruned(folders[0])
    unanchored = [Path(finding.file) for finding in findings if finding.code in _WITHOUT_ANCHOR]
    if anchors is not None and (folders or unanchored):
        findings += find_evicted((*folders, *unanchored)[0], anchors)
    if store is not None:
        findings += describe_state(store)
    return VerifyResult(len(files), verifier.line_count, tuple(findings))


def _list_files(paths: Iterable[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        if path.is_dir():
            try:
                files = sorted(file for file in path.iterdir() if file.suffix == SUFFIX)
            except OSError as error:
                reason = f"cannot be read: {error.strerror}"
                raise JournalError(path, reason, "check that you can read the folder") from None
            inner = path / JOURNAL_FOLDER
            if not files and inner.is_dir():  # a store's folder
                reason = "contains no journal, but a folder of journals"
                raise JournalError(path, reason, f"pass {inner}, and its store with --store")
        elif path.exists() or path.is_symlink():
            files = [path]
        else:
            remedy = "pass a journal, a folder of journals, or the store"
            raise JournalError(hide_address(path), "does not exist", remedy)
        for file in files:
            if file not in seen:
                seen.add(file)
                yield file


class _Verifier:
    """One run: the anchors of each file by its name, and the number of lines read."""

    def __init__(
        self,
        anchors: AnchorStore | None,
        exported: tuple[Anchor | JournalNote, ...],
        hasher: Hasher,
        *,
        is_one: bool,
    ) -> None:
        self._anchors = anchors
        # Of a single folder, sessions may be elsewhere; several are all there are.
        self._other_hosts = OtherHosts(anchors, is_one=is_one)
        self._hasher = hasher
        exported_anchors = [one for one in exported if isinstance(one, Anchor)]
        exported_notes = [one for one in exported if not isinstance(one, Anchor)]
        self._exported_files = {file_name(anchor.session) for anchor in exported_anchors}
        self.anchors_by_file: dict[str, list[Anchor]] = {}
        self.line_count = 0
        stored = tuple(anchors.all()) if anchors is not None else ()
        self._stored = {anchor.session: anchor for anchor in stored}
        notes = (*(anchors.notes() if anchors is not None else ()), *exported_notes)
        self._pruned = {(n.session, n.chain): n for n in notes if isinstance(n, Pruned)}
        self._repaired: dict[tuple[str, str], dict[Repaired, None]] = {}
        for note in notes:
            if isinstance(note, Repaired):
                self._repaired.setdefault((note.session, note.chain), {})[note] = None
        # An attacker who can write the store can make up notes: an exported anchor
        # is explained by an exported note only.
        present = {(anchor.session, anchor.chain) for anchor in stored}
        self._explained = {
            (note.session, note.chain): note.count
            for note in exported_notes
            if isinstance(note, Pruned) and (note.session, note.chain) not in present
        }
        for anchor in (*stored, *exported_anchors):
            self.anchors_by_file.setdefault(file_name(anchor.session), []).append(anchor)

    def add_files(self, files: Iterable[Path]) -> None:
        """Let files of one session, of several hosts, explain each other."""
        self._other_hosts.add(files)

    def find_missing(self, folder: Path, names: set[str]) -> Iterator[VerifyFinding]:
        """Report anchored sessions without a file."""
        for name, anchors in self.anchors_by_file.items():
            unexplained = [anchor for anchor in anchors if not self._is_explained(anchor)]
            if name in names or not unexplained:
                continue
            last = max(unexplained, key=lambda anchor: anchor.count)
            exported = name in self._exported_files
            if not exported and self._anchors is not None and not self._anchors.get(last.session):
                continue  # pruned since the anchors were read
            if self._other_hosts.have(last.session, folder):
                continue
            message = f"session {last.session!r:.80} has {last.count} anchored lines, but no file"
            note = self._pruned.get((last.session, last.chain))
            if note is not None:
                message += f"; the store says that it was pruned on {format_time(note.at)}"
            yield make_finding("journal/missing-file", folder / name, message)
        yield from self._other_hosts.describe(folder)

    def find_pruned(self, folder: Path) -> Iterator[VerifyFinding]:
        """Report the journals that were deleted last."""
        notes = list(self._pruned.values())
        for note in notes[-_MAX_FINDINGS:]:
            yield describe_pruning(folder / file_name(note.session), note)
        if len(notes) > _MAX_FINDINGS:
            message = f"{len(notes) - _MAX_FINDINGS} more were deleted before"
            yield make_finding("journal/pruned", folder, message)

    def _is_explained(self, anchor: Anchor) -> bool:
        return anchor.count <= self._explained.get((anchor.session, anchor.chain), 0)

    def check(self, file: Path) -> list[VerifyFinding]:
        """Return the findings about one file."""
        try:
            return list(self._check(file))
        except OSError as error:
            reason = f"cannot be read: {error.strerror or error}"
            return [make_finding("journal/unreadable", file, reason)]

    def _check(self, file: Path) -> Iterator[VerifyFinding]:
        if not file.is_file():
            yield make_finding("journal/unreadable", file, "not a regular file")
            return
        with file.open("rb") as content:
            first = content.readline()
        anchors = self.anchors_by_file.get(file.name, [])
        session = anchors[0].session if anchors else decode_session(first)
        if not anchors and session is not None:
            # A copy under another name is compared with the anchors of its session.
            anchors = self.anchors_by_file.get(file_name(session), [])
        if not first.endswith(b"\n"):
            if not anchors and not is_journal_name(file):  # a torn journal has its own name
                yield make_finding("journal/no-chain", file, "has no complete line of a journal", 1)
            else:
                yield describe_empty(file, first, anchors)
            return
        link = parse_link(first[:-1])
        if link is None and not anchors and not is_journal_name(file):
            yield make_finding("journal/no-chain", file, "its first line is not a journal line", 1)
            return
        if link is not None and link.key_id not in self._hasher.key_ids and not link.seq:
            yield describe_key(file, link.key_id)
            return
        session = session or ""
        if is_journal_name(file) and file_name(session) != file.name:
            message = f"holds session {session!r:.80}, but has another session's name"
            yield make_finding("journal/foreign-chain", file, message, 1)
            return
        key_id, chain = (link.key_id, link.chain) if link is not None else ("", "")
        yield from self._check_signature(file, session, key_id)
        end = self._find_end(session, chain, file.parent)
        yield from self._follow(file, session, anchors, key_id, end)

    def _check_signature(self, file: Path, session: str, key_id: str) -> Iterator[VerifyFinding]:
        """Report an anchor in the store that the holder of the key did not write."""
        anchor = self._stored.get(session)
        if anchor is None:
            return
        forgery = find_forgery(anchor, self._hasher, key_id)
        if forgery:
            message = f"its anchor was not made with its key: {forgery}"
            yield make_finding("journal/forged-anchor", file, message)
        elif is_unsigned(anchor, self._hasher, key_id):
            yield describe_unsigned(file)

    def _follow(
        self, file: Path, session: str, anchors: list[Anchor], key_id: str, end: Anchor | None
    ) -> Iterator[VerifyFinding]:
        position = ChainPosition()
        hash_at: dict[int, str] = {}
        counts = {anchor.count for anchor in (*anchors, *([end] if end is not None else ()))}
        # With a key the first line is anchored before the second is written.
        anchored_line = 1 if key_id and key_id == self._hasher.key_id else 0
        tail = b""
        with file.open("rb") as content:
            for line in content:
                if not line.endswith(b"\n"):
                    tail = line
                    break
                try:
                    position = advance(self._hasher, session, position, line[:-1])
                except BrokenChainError:
                    yield from self._explain_break(file, session, anchors)
                    return
                if line.startswith(_ANCHORED_LINES):
                    anchored_line = position.count
                if position.count in counts:
                    hash_at[position.count] = position.hash
        self.line_count += position.count
        unexplained = [
            anchor
            for anchor in anchors
            if anchor.chain == position.chain or not self._is_explained(anchor)
        ]
        if self._is_left_over(session, position, anchors, file.parent):
            unexplained = []
            if end is None:
                yield describe_unproven(file, position.count, was_pruned=True)
        if end is not None and all(anchor.chain != end.chain for anchor in anchors):
            unexplained.append(end)
        handed_over = self._other_hosts.find_handover(file, position, unexplained)
        if handed_over is not None:
            yield handed_over
        else:
            yield from compare_anchors(file, position, unexplained, hash_at, tail)
        for note in self._repaired.get((session, position.chain), ()):
            yield from describe_repair(file, note)
        if tail and all(anchor.count <= position.count for anchor in anchors):
            message = f"{len(tail)} bytes of an unfinished line"
            yield make_finding("journal/torn-line", file, message, position.count + 1)
        if handed_over is None and self._has_lost_anchor(session, position, anchors, anchored_line):
            message = "was anchored when it was written, and the store has no such anchor"
            yield make_finding("journal/lost-anchor", file, message, anchored_line)
        elif not anchors and self._anchors is not None:
            was_pruned = end is None and (session, position.chain) in self._pruned
            yield describe_unproven(file, position.count, was_pruned=was_pruned)

    def _is_left_over(
        self, session: str, end: ChainPosition, anchors: list[Anchor], folder: Path
    ) -> bool:
        """Whether a file is of a journal that was pruned, and its session began anew elsewhere."""
        return (
            (session, end.chain) in self._pruned
            and all(anchor.chain != end.chain for anchor in anchors)
            and bool(self._other_hosts.find_place(session, folder))
            and not self._other_hosts.has_put(session, folder)
        )

    def _find_end(self, session: str, chain: str, folder: Path) -> Anchor | None:
        """Return the end of a journal that is deleted as due but for its file in this folder.

        Its place is noted where hosts share a store: only there the file has that end for certain.
        """
        note = self._pruned.get((session, chain))
        if note is None or not note.place or note.place != place_of(folder):
            return None
        return Anchor(session, chain, note.count, note.hash, note.size)

    def _has_lost_anchor(
        self, session: str, end: ChainPosition, anchors: list[Anchor], line: int
    ) -> bool:
        """Whether a line was anchored for certain, and the store does not know.

        Of the last line it is not certain: the process may have been killed before.
        """
        if self._anchors is None or self._anchors.count_evicted() or line >= end.count:
            return False
        if any(anchor.chain != end.chain for anchor in anchors):
            return False  # another chain has its anchors
        now = self._anchors.get(session)  # the journal may have been written meanwhile
        known = [anchor.count for anchor in (self._stored.get(session), now) if anchor is not None]
        note = self._pruned.get((session, end.chain))
        if note is not None and (
            note.hash == end.hash or isinstance(self._anchors, SharedAnchorStore)
        ):
            return False  # the process died before it deleted the file
        return line > max([0, *known, self._explained.get((session, end.chain), 0)])

    def _explain_break(
        self, file: Path, session: str, anchors: list[Anchor]
    ) -> Iterator[VerifyFinding]:
        with file.open("rb") as content:
            lines = [line[:-1] for line in content if line.endswith(b"\n")]
        self.line_count += len(lines)
        findings = list(islice(find_tampering(file, lines, session, self._hasher), _MAX_FINDINGS))
        if not findings:
            message = "the chain is broken in an unknown way"
            findings = [make_finding("journal/edited", file, message)]
        yield from findings
        if len(findings) == _MAX_FINDINGS:
            message = f"only the first {_MAX_FINDINGS} findings are shown"
            yield make_finding("journal/edited", file, message)
        anchored = max((anchor.count for anchor in anchors), default=0)
        links = [link for line in lines if (link := parse_link(line)) is not None]
        last = max((link.seq for link in links), default=-1)
        if last + 1 < anchored:
            message = f"ends with line {last} of the chain, but {anchored} lines were anchored"
            yield make_finding("journal/cut-tail", file, message)
