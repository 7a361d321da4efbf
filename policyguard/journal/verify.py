"""Has anybody been at the journals? Reads them, and compares them with their anchors.

The anchors are read first, then the files: an honest writer writes its line before its anchor, so
a file that is being written meanwhile is never behind the anchors that were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from policyguard.journal.chain import Hasher, parse_link
from policyguard.journal.chain_position import (
    BrokenChainError,
    ChainPosition,
    advance,
    decode_session,
)
from policyguard.journal.errors import JournalError
from policyguard.journal.file_names import SUFFIX, file_name, is_journal_name
from policyguard.journal.findings import VerifyFinding, make_finding
from policyguard.journal.tampering import find_tampering
from policyguard.store.paths import JOURNAL_FOLDER
from policyguard.store.protocol import Anchor, AnchorStore

_MAX_FINDINGS = 100
"""Findings about one file that are listed: nobody reads on in a file that is all wrong."""


_WITHOUT_ANCHOR = ("journal/no-anchor", "journal/empty")
"""What is said of a file that no anchor speaks of."""


class VerifyResult(msgspec.Struct, frozen=True):
    """What was read, and what was found in it."""

    files: int
    lines: int
    findings: tuple[VerifyFinding, ...]

    @property
    def has_failed(self) -> bool:
        """Whether anything was found that no honest writer leaves behind."""
        return any(finding.severity == "error" for finding in self.findings)


def verify(
    paths: Sequence[Path],
    *,
    anchors: AnchorStore | None = None,
    exported: Iterable[Anchor] = (),
    key: bytes | None = None,
) -> VerifyResult:
    """Verify journals: files, and folders with all that lies in them.

    `anchors` is the store's, `exported` what was taken from it before (every one of them is to
    hold), `key` what the hashes were made with. Of a folder, files that an anchor speaks of and
    that are not there are found too. Raises `JournalError` for a path that is not there, and for
    a folder that has the journals in one of its own; `StoreError`.
    """
    taken = tuple(exported)
    known: dict[str, list[Anchor]] = {}
    for anchor in (*(anchors.all() if anchors is not None else ()), *taken):
        known.setdefault(file_name(anchor.session), []).append(anchor)
    checker = _Verifier(
        anchors_by_file=known,
        exported_files={file_name(anchor.session) for anchor in taken},
        hasher=Hasher(key),
        has_anchors=anchors is not None,
    )
    # A store's folder of journals is one also where somebody has taken it away as a whole.
    gone = [path for path in paths if known and path.name == JOURNAL_FOLDER and not path.exists()]
    folders = [path for path in paths if path.is_dir()] + gone
    files = list(_list_files(path for path in paths if path not in gone))
    findings = [finding for file in files for finding in checker.check(file)]
    if folders:
        folder = folders[0]
        findings += _find_missing(folder, {file.name for file in files}, checker, anchors)
    loose = [Path(one.file) for one in findings if one.code in _WITHOUT_ANCHOR]
    if anchors is not None and (folders or loose):
        findings += _find_evicted((*folders, *loose)[0], anchors)
    return VerifyResult(len(files), checker.line_count, tuple(findings))


def _list_files(paths: Iterable[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        if path.is_dir():
            try:
                found_here = sorted(file for file in path.iterdir() if file.suffix == SUFFIX)
            except OSError as error:
                raise _folder_error(path, error) from None
            inner = path / JOURNAL_FOLDER
            if not found_here and inner.is_dir():  # a store's folder
                reason = "holds no journal, but a folder of them"
                raise JournalError(path, reason, f"name {inner}, and its store with --store")
        elif path.exists() or path.is_symlink():
            found_here = [path]
        else:
            remedy = "name a journal, a folder of them, or the store"
            raise JournalError(path, "is not there", remedy)
        for file in found_here:
            if file not in seen:
                seen.add(file)
                yield file


def _find_missing(
    folder: Path, names: set[str], checker: _Verifier, anchors: AnchorStore | None
) -> Iterator[VerifyFinding]:
    """Sessions that were anchored and have no file."""
    for name, known in checker.anchors_by_file.items():
        if name in names:
            continue
        last = max(known, key=lambda anchor: anchor.count)
        if (
            name not in checker.exported_files
            and anchors is not None
            and not anchors.get(last.session)
        ):
            continue  # forgotten since the anchors were read, and its file with it
        message = f"session {last.session!r:.80} has {last.count} anchored lines, and no file"
        yield make_finding("journal/missing-file", folder / name, message)


def _find_evicted(path: Path, anchors: AnchorStore) -> Iterator[VerifyFinding]:
    """Sessions without an anchor may have had one: cut, or taken away, nobody would see it."""
    dropped = anchors.count_evicted()
    if dropped:
        what = "anchor of 1 session" if dropped == 1 else f"anchors of {dropped} sessions"
        message = f"the store has dropped the {what}, beyond `bounds.journals`: "
        message += "sessions without an anchor are not proven"
        yield make_finding("journal/dropped-anchors", path, message)


class _Verifier:
    """One run: the anchors of each file by its name, and how many lines were read.

    `lasting` names the files of which an anchor was exported: that holds if the store forgets it.
    """

    def __init__(
        self,
        *,
        anchors_by_file: dict[str, list[Anchor]],
        exported_files: set[str],
        hasher: Hasher,
        has_anchors: bool,
    ) -> None:
        self.anchors_by_file = anchors_by_file
        self.exported_files = exported_files
        self.line_count = 0
        self._hasher = hasher
        self._has_anchors = has_anchors

    def check(self, file: Path) -> list[VerifyFinding]:
        """All that is to be said of one file."""
        try:
            return list(self._check(file))
        except OSError as error:
            reason = f"cannot be read: {error.strerror or error}"
            return [make_finding("journal/unreadable", file, reason)]

    def _check(self, file: Path) -> Iterator[VerifyFinding]:
        if not file.is_file():
            yield make_finding("journal/unreadable", file, "no regular file")
            return
        with file.open("rb") as content:
            first = content.readline()
        anchors = self.anchors_by_file.get(file.name, [])
        session = anchors[0].session if anchors else decode_session(first)
        if not anchors and session is not None:
            # A copy under another name is verified against the anchors of its session.
            anchors = self.anchors_by_file.get(file_name(session), [])
        if not first.endswith(b"\n"):
            yield from self._check_empty(file, first, anchors)
            return
        link = parse_link(first[:-1])
        if link is None and not anchors and not is_journal_name(file):
            yield make_finding(
                "journal/no-chain", file, "its first line is no line of a journal", 1
            )
            return
        if link is not None and link.key_id != self._hasher.key_id and not link.seq:
            yield _key_finding(file, link.key_id)
            return
        session = session or ""
        if is_journal_name(file) and file_name(session) != file.name:
            message = f"the name is another session's than {session!r:.80}"
            yield make_finding("journal/foreign-chain", file, message, 1)
            return
        yield from self._follow(file, session, anchors)

    def _check_empty(
        self, file: Path, rest: bytes, anchors: list[Anchor]
    ) -> Iterator[VerifyFinding]:
        if anchors:
            most = max(anchor.count for anchor in anchors)
            yield make_finding("journal/cut-tail", file, f"has no line where {most} were anchored")
        elif rest:
            yield make_finding("journal/torn-line", file, f"{len(rest)} bytes of a first line", 1)
        else:
            yield make_finding("journal/empty", file, "has no line")

    def _follow(self, file: Path, session: str, anchors: list[Anchor]) -> Iterator[VerifyFinding]:
        position = ChainPosition()
        at_anchor: dict[int, str] = {}
        counts = {anchor.count for anchor in anchors}
        rest = b""
        with file.open("rb") as content:
            for line in content:
                if not line.endswith(b"\n"):
                    rest = line
                    break
                try:
                    position = advance(self._hasher, session, position, line[:-1])
                except BrokenChainError:
                    yield from self._explain_break(file, session, anchors)
                    return
                if position.count in counts:
                    at_anchor[position.count] = position.hash
        self.line_count += position.count
        yield from _compare_anchors(file, position, anchors, at_anchor, rest)
        if rest and all(anchor.count <= position.count for anchor in anchors):
            message = f"{len(rest)} bytes of a line that was not written to its end"
            yield make_finding("journal/torn-line", file, message, position.count + 1)
        if not anchors and self._has_anchors:
            yield make_finding(
                "journal/no-anchor", file, f"none of {position.count} lines is anchored"
            )

    def _explain_break(
        self, file: Path, session: str, anchors: list[Anchor]
    ) -> Iterator[VerifyFinding]:
        with file.open("rb") as content:
            lines = [line[:-1] for line in content if line.endswith(b"\n")]
        self.line_count += len(lines)
        findings = list(islice(find_tampering(file, lines, session, self._hasher), _MAX_FINDINGS))
        if not findings:
            message = "the chain does not hold, in a way that has no name"
            findings = [make_finding("journal/edited", file, message)]
        yield from findings
        if len(findings) == _MAX_FINDINGS:
            yield make_finding(
                "journal/edited", file, f"{_MAX_FINDINGS} findings are shown, and there are more"
            )
        most = max((anchor.count for anchor in anchors), default=0)
        last = max(
            (link.seq for line in lines if (link := parse_link(line)) is not None), default=-1
        )
        if last + 1 < most:
            message = f"ends with line {last} of the chain where {most} lines were anchored"
            yield make_finding("journal/cut-tail", file, message)


def _compare_anchors(
    file: Path,
    position: ChainPosition,
    anchors: list[Anchor],
    at_anchor: dict[int, str],
    rest: bytes,
) -> Iterator[VerifyFinding]:
    """A chain that holds, against what was known of it. `rest` follows its last whole line."""
    own = [anchor for anchor in anchors if anchor.chain == position.chain]
    lengths: dict[str, int] = {}
    for anchor in anchors:
        if anchor.chain != position.chain:
            lengths[anchor.chain] = max(anchor.count, lengths.get(anchor.chain, 0))
    for length in lengths.values():
        message = f"is another chain than one of session {anchors[0].session!r:.80}, of which"
        yield make_finding("journal/foreign-chain", file, f"{message} {length} lines were anchored")
    if not own:
        return
    most = max(anchor.count for anchor in own)
    if position.count < most:
        message = f"has {position.count} lines where {most} were anchored"
        if rest:  # an anchored line was written to its end: this one was cut, not torn
            message += f", and {len(rest)} bytes of one more"
        yield make_finding("journal/cut-tail", file, message, position.count)
    there = [anchor for anchor in own if anchor.count <= position.count]
    wrong = [anchor.count for anchor in there if at_anchor.get(anchor.count) != anchor.hash]
    if wrong:
        message = f"holds, and line {min(wrong)} is not the one that was anchored"
        yield make_finding("journal/rewritten", file, message, min(wrong))
    beyond = position.count - most
    if beyond > 0:
        message = f"{beyond} line{'' if beyond == 1 else 's'} beyond the last anchor"
        yield make_finding("journal/unanchored", file, message, position.count - beyond + 1)


def _key_finding(file: Path, key: str) -> VerifyFinding:
    if not key:
        return make_finding("journal/no-key", file, "was written without a key", 1)
    return make_finding(
        "journal/key", file, f"was written with another key (`{key}`), or needs one", 1
    )


def _folder_error(path: Path, error: OSError) -> JournalError:
    return JournalError(
        path, f"cannot be read: {error.strerror}", "see that the folder is yours to read"
    )
