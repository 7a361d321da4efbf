"""What was done to a chain that does not hold: the lines are laid beside those that should stand.

That it does not hold is certain; what was done is the simplest story that fits. A line whose own
hash holds was written by somebody who could hash; its `seq` says where it belongs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from policyguard.journal.chain import ChainLink, Hasher, parse_link
from policyguard.journal.chain_position import decode_session
from policyguard.journal.findings import VerifyFinding, make_finding


class _Line(msgspec.Struct, frozen=True):
    """One line: its number in the file, what it says of its place, whether its hash holds."""

    number: int
    link: ChainLink | None
    is_intact: bool
    session: str | None


def find_tampering(
    path: Path, lines: Iterable[bytes], session: str, hasher: Hasher
) -> Iterator[VerifyFinding]:
    """Findings about complete lines (without line feeds) of a session's chain, in their order."""
    read = [_parse_line(number, line, hasher) for number, line in enumerate(lines, start=1)]
    own = [line for line in read if line.is_intact and line.session == session]
    places = {line.link.seq: line for line in reversed(own) if line.link is not None}
    known = sorted(places)
    follows = _next_intact_seqs(read)
    expected, last = 0, -1
    for line, following in zip(read, follows, strict=True):
        link = line.link
        if not line.is_intact or link is None:
            if following == expected:
                message = "was put in: the chain goes on without it"
                yield make_finding("journal/inserted", path, message, line.number)
            else:
                yield make_finding("journal/edited", path, "is not as it was written", line.number)
                expected += 1
            continue
        if line.session != session:
            message = f"is of another session, {line.session!r:.80}"
            yield make_finding("journal/foreign-chain", path, message, line.number)
            continue
        if places[link.seq] is not line:
            again = f"stands at line {places[link.seq].number} already"
            yield make_finding(
                "journal/inserted", path, f"line {link.seq} of the chain {again}", line.number
            )
            continue
        if link.seq < last:
            message = f"is line {link.seq} of the chain, and stands after line {last}"
            yield make_finding("journal/reordered", path, message, line.number)
            continue
        elsewhere = bisect_left(known, link.seq) - bisect_left(known, expected)
        missing = link.seq - expected - elsewhere
        if missing > 0:
            lines_are = "line of the chain is" if missing == 1 else "lines of the chain are"
            message = f"before it, {missing} {lines_are} missing, from line {expected} on"
            yield make_finding("journal/dropped", path, message, line.number)
        before = places.get(link.seq - 1)
        prev = before.link.hash if before is not None and before.link is not None else None
        if not link.seq:
            prev = hasher.genesis(session, link.chain)
        if prev is not None and link.prev != prev:
            message = "does not follow the line before: one of the two was replaced"
            yield make_finding("journal/edited", path, message, line.number)
        last = link.seq
        expected = link.seq + 1


def _parse_line(number: int, line: bytes, hasher: Hasher) -> _Line:
    link = parse_link(line)
    holds = link is not None and hasher.matches(line, link)
    return _Line(number, link, holds, decode_session(line))


def _next_intact_seqs(read: list[_Line]) -> list[int | None]:
    """For each line, the place of the next one whose hash holds."""
    places: list[int | None] = []
    following: int | None = None
    for line in reversed(read):
        places.append(following)
        if line.is_intact and line.link is not None:
            following = line.link.seq
    return places[::-1]
