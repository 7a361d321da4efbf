"""Explain how a broken chain was altered, by comparing its lines with those that should be there.

The break is certain; the explanation is the simplest one that fits. A line that matches its own
hash was written by someone who could hash; its `seq` says where it belongs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from policyguard.journal.chain import ChainLink, Hasher, decode_session, parse_link
from policyguard.journal.findings import VerifyFinding, make_finding


class _Line(msgspec.Struct, frozen=True):
    """One line: its number in the file, its chain fields if it matches its hash, its session."""

    number: int
    link: ChainLink | None
    session: str | None


def find_tampering(
    path: Path, data: Iterable[bytes], session: str, hasher: Hasher
) -> Iterator[VerifyFinding]:
    """Yield findings about complete lines (without line feeds) of a session's chain, in order."""
    lines = [_parse_line(number, line, hasher) for number, line in enumerate(data, start=1)]
    by_seq: dict[int, _Line] = {}
    for line in lines:
        if line.link is not None and line.session == session:
            by_seq.setdefault(line.link.seq, line)
    known_seqs = sorted(by_seq)
    expected, last = 0, -1
    for line, next_seq in zip(lines, _next_intact_seqs(lines), strict=True):
        link = line.link
        if link is None:
            if next_seq == expected:
                message = "was inserted: the chain continues without it"
                yield make_finding("journal/inserted", path, message, line.number)
            else:
                yield make_finding("journal/edited", path, "was edited", line.number)
                expected += 1
            continue
        seq = link.seq
        if line.session != session:
            message = f"belongs to another session, {line.session!r:.80}"
            yield make_finding("journal/foreign-chain", path, message, line.number)
            continue
        if by_seq[seq] is not line:
            message = f"repeats line {seq} of the chain, which is at line {by_seq[seq].number}"
            yield make_finding("journal/inserted", path, message, line.number)
            continue
        if seq < last:
            message = f"line {seq} of the chain comes after line {last}"
            yield make_finding("journal/reordered", path, message, line.number)
            continue
        elsewhere = bisect_left(known_seqs, seq) - bisect_left(known_seqs, expected)
        missing = seq - expected - elsewhere
        if missing > 0:
            lines_are = "line is" if missing == 1 else "lines are"
            message = f"{missing} {lines_are} missing before it, from line {expected} of the chain"
            yield make_finding("journal/dropped", path, message, line.number)
        if seq:
            before = by_seq.get(seq - 1)
            prev = before.link.hash if before is not None and before.link is not None else None
        else:
            prev = hasher.genesis(session, link.chain)
        if prev is not None and link.prev != prev:
            message = "does not follow the previous line: one of the two was replaced"
            yield make_finding("journal/edited", path, message, line.number)
        last = seq
        expected = seq + 1


def _parse_line(number: int, line: bytes, hasher: Hasher) -> _Line:
    link = parse_link(line)
    intact = link is not None and hasher.matches(line, link)
    return _Line(number, link if intact else None, decode_session(line))


def _next_intact_seqs(lines: list[_Line]) -> list[int | None]:
    """Return, for each line, the `seq` of the next line that matches its hash."""
    seqs: list[int | None] = []
    next_seq: int | None = None
    for line in reversed(lines):
        seqs.append(next_seq)
        if line.link is not None:
            next_seq = line.link.seq
    return seqs[::-1]
