"""How far a chain has been followed, and the one step that follows it further."""

from __future__ import annotations

import msgspec

from policyguard.journal.chain import ChainLink, Hasher, parse_link


class ChainPosition(msgspec.Struct, frozen=True):
    """After `count` lines of `size` bytes, the last of which has `hash`. `chain`: see `chain`."""

    chain: str = ""
    count: int = 0
    hash: str = ""
    size: int = 0


class BrokenChainError(Exception):
    """A line does not follow; the message says in which way."""


class _SessionField(msgspec.Struct, frozen=True):
    session: str


_session_decoder = msgspec.json.Decoder(_SessionField)


def decode_session(line: bytes) -> str | None:
    """The session that a line speaks of; None where it is no event."""
    try:
        return _session_decoder.decode(line).session
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def advance(hasher: Hasher, session: str, at: ChainPosition, line: bytes) -> ChainPosition:
    """The position after one more line (without its line feed). Raises `BrokenError`."""
    link = parse_link(line)
    if link is None:
        raise BrokenChainError("is no line of a journal")
    if not hasher.matches(line, link):
        raise BrokenChainError("is not as it was written")
    if decode_session(line) != session:
        raise BrokenChainError("is of another session")
    chain = at.chain or link.chain
    if link.seq != at.count or link.prev != _expected_prev(hasher, session, at, link):
        raise BrokenChainError("does not follow the one before")
    return ChainPosition(chain, at.count + 1, link.hash, at.size + len(line) + 1)


def _expected_prev(hasher: Hasher, session: str, at: ChainPosition, link: ChainLink) -> str:
    return at.hash if at.count else hasher.genesis(session, link.chain)
