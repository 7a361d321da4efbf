"""What was done to a chain that does not hold: the lines are laid beside those that should stand.

That it does not hold is certain; what was done is the simplest story that fits. A line whose own
hash holds was written by somebody who could hash; its `seq` says where it belongs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from policyguard.journal.chain import Hasher, Link, parse
from policyguard.journal.finding import Finding, found
from policyguard.journal.position import session_of


class _Line(msgspec.Struct, frozen=True):
    """One line: its number in the file, what it says of its place, whether its hash holds."""

    number: int
    link: Link | None
    holds: bool
    session: str | None


def diagnose(path: Path, lines: Iterable[bytes], session: str, hasher: Hasher) -> Iterator[Finding]:
    """Findings about complete lines (without line feeds) of a session's chain, in their order."""
    read = [_line(number, line, hasher) for number, line in enumerate(lines, start=1)]
    own = [line for line in read if line.holds and line.session == session]
    places = {line.link.seq: line for line in reversed(own) if line.link is not None}
    known = sorted(places)
    follows = _next_places(read)
    expected, last = 0, -1
    for line, following in zip(read, follows, strict=True):
        link = line.link
        if not line.holds or link is None:
            if following == expected:
                message = "was put in: the chain goes on without it"
                yield found("journal/inserted", path, message, line.number)
            else:
                yield found("journal/edited", path, "is not as it was written", line.number)
                expected += 1
            continue
        if line.session != session:
            message = f"is of another session, {line.session!r:.80}"
            yield found("journal/foreign-chain", path, message, line.number)
            continue
        if places[link.seq] is not line:
            again = f"stands at line {places[link.seq].number} already"
            yield found(
                "journal/inserted", path, f"line {link.seq} of the chain {again}", line.number
            )
            continue
        if link.seq < last:
            message = f"is line {link.seq} of the chain, and stands after line {last}"
            yield found("journal/reordered", path, message, line.number)
            continue
        elsewhere = bisect_left(known, link.seq) - bisect_left(known, expected)
        missing = link.seq - expected - elsewhere
        if missing > 0:
            lines_are = "line of the chain is" if missing == 1 else "lines of the chain are"
            message = f"before it, {missing} {lines_are} missing, from line {expected} on"
            yield found("journal/dropped", path, message, line.number)
        before = places.get(link.seq - 1)
        prev = before.link.hash if before is not None and before.link is not None else None
        if not link.seq:
            prev = hasher.genesis(session, link.chain)
        if prev is not None and link.prev != prev:
            message = "does not follow the line before: one of the two was replaced"
            yield found("journal/edited", path, message, line.number)
        last = link.seq
        expected = link.seq + 1


def _line(number: int, line: bytes, hasher: Hasher) -> _Line:
    link = parse(line)
    holds = link is not None and hasher.holds(line, link)
    return _Line(number, link, holds, session_of(line))


def _next_places(read: list[_Line]) -> list[int | None]:
    """For each line, the place of the next one whose hash holds."""
    places: list[int | None] = []
    following: int | None = None
    for line in reversed(read):
        places.append(following)
        if line.holds and line.link is not None:
            following = line.link.seq
    return places[::-1]
