"""Following a chain line by line."""

from __future__ import annotations

import msgspec

from policyguard.journal.chain import Hasher, parse_link


class ChainPosition(msgspec.Struct, frozen=True):
    """The position after `count` lines of `size` bytes, the last with `hash`."""

    chain: str = ""
    count: int = 0
    hash: str = ""
    size: int = 0


class BrokenChainError(Exception):
    """A line does not follow the chain; the message says why."""


class _SessionField(msgspec.Struct, frozen=True):
    session: str


_session_decoder = msgspec.json.Decoder(_SessionField)


def decode_session(line: bytes) -> str | None:
    """Return the session of a line; None if it is not an event."""
    try:
        return _session_decoder.decode(line).session
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def advance(hasher: Hasher, session: str, at: ChainPosition, line: bytes) -> ChainPosition:
    """Follow one more line (without line feed). Raises `BrokenChainError`."""
    link = parse_link(line)
    if link is None:
        raise BrokenChainError("is not a journal line")
    if not hasher.matches(line, link):
        raise BrokenChainError("was edited")
    if decode_session(line) != session:
        raise BrokenChainError("belongs to another session")
    chain = at.chain or link.chain
    prev = at.hash if at.count else hasher.genesis(session, link.chain)
    if link.seq != at.count or link.prev != prev:
        raise BrokenChainError("does not follow the previous line")
    return ChainPosition(chain, at.count + 1, link.hash, at.size + len(line) + 1)
