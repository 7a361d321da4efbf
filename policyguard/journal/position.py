"""How far a chain has been followed, and the one step that follows it further."""

from __future__ import annotations

import msgspec

from policyguard.journal.chain import Hasher, Link, parse


class Position(msgspec.Struct, frozen=True):
    """After `count` lines of `size` bytes, the last of which has `hash`. `chain`: see `chain`."""

    chain: str = ""
    count: int = 0
    hash: str = ""
    size: int = 0


class BrokenError(Exception):
    """A line does not follow; the message says in which way."""


class _Head(msgspec.Struct, frozen=True):
    session: str


_head = msgspec.json.Decoder(_Head)


def session_of(line: bytes) -> str | None:
    """The session that a line speaks of; None where it is no event."""
    try:
        return _head.decode(line).session
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def advance(hasher: Hasher, session: str, at: Position, line: bytes) -> Position:
    """The position after one more line (without its line feed). Raises `BrokenError`."""
    link = parse(line)
    if link is None:
        raise BrokenError("is no line of a journal")
    if not hasher.holds(line, link):
        raise BrokenError("is not as it was written")
    if session_of(line) != session:
        raise BrokenError("is of another session")
    chain = at.chain or link.chain
    if link.seq != at.count or link.prev != _expected(hasher, session, at, link):
        raise BrokenError("does not follow the one before")
    return Position(chain, at.count + 1, link.hash, at.size + len(line) + 1)


def _expected(hasher: Hasher, session: str, at: Position, link: Link) -> str:
    return at.hash if at.count else hasher.genesis(session, link.chain)
