"""The hash chain: a line's hash covers all its bytes, among them the previous line's hash.

A journal appends its fields to an event's line, in this order:

    …,"seq":0,"chain":"<random id>","key_id":"<id of the key>","prev":"…","masked":true,"hash":"…"}

`seq` counts the lines from 0. `chain` is in the first line only, as is `key_id`, which needs a key.
`prev` is the previous line's hash; in the first line it is derived from the session and the chain's
id, so that no line of another chain fits. `masked` marks redacted arguments or results. `hash` is
the SHA-256 (with a key: HMAC-SHA-256, RFC 2104) of all the line's bytes before `,"hash"`.
"""

from __future__ import annotations

import hmac
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from policyguard.engines.input_file import open_input
from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.journal.errors import JournalError
from policyguard.store.paths import hide_address

CHAIN_FIELDS = ("seq", "chain", "key_id", "prev", "masked", "hash")
"""The fields that a journal appends, in order."""

_CHAIN_SUFFIX = lazy_pattern(
    rb',"seq":(?P<seq>0|[1-9][0-9]{0,17})'
    rb'(?:,"chain":"(?P<chain>[0-9a-f]{32})"(?:,"key_id":"(?P<key>[0-9a-f]{16})")?)?'
    rb',"prev":"(?P<prev>[0-9a-f]{64})"'
    rb'(?P<masked>,"masked":true)?'
    rb'(?P<end>,"hash":"(?P<hash>[0-9a-f]{64})"\})'
)
_SUFFIX_START = b',"seq":'
HASH_BYTES = len(b'"hash":"') + 64 + len(b'"}\n')
"""The bytes at the end of a line that hold its hash, line feed included."""

_MIN_KEY_BYTES, _MAX_KEY_BYTES = 16, 65_536
"""From the key's id, which each journal holds, a shorter key could be guessed. A longer file is a
device or a mistake."""


class ChainLink(msgspec.Struct, frozen=True):
    """A line's chain fields.

    `chain` and `key_id` are empty except in a first line. In the line's bytes, the event ends at
    `event_end`, and the hashed part at `hashed_end`.
    """

    seq: int
    chain: str
    key_id: str
    prev: str
    masked: bool
    hash: str
    event_end: int
    hashed_end: int


class Hasher:
    """The hash function of a chain: open to anyone, or keyed."""

    def __init__(self, key: bytes | None = None) -> None:
        self.new_hash = sha256 if key is None else partial(hmac.new, key, digestmod="sha256")
        """Returns a hash object of bytes (`hexdigest`)."""
        self.key_id = "" if key is None else self.digest(b"policyguard journal key 2\0")[:16]
        """Identifies the key without revealing it; empty without a key."""
        earlier = "" if key is None else self.digest(b"policyguard journal key\0")[:16]
        self.key_ids = (self.key_id, earlier)
        """Also the id in journals of versions that did not sign anchors."""

    def digest(self, data: bytes) -> str:
        """Return the hash of bytes, in hex."""
        return self.new_hash(data).hexdigest()

    def genesis(self, session: str, chain: str) -> str:
        """Return the `prev` of a chain's first line."""
        name = session.encode("utf-8", "surrogatepass")
        return self.digest(b"policyguard journal 1\0%b\0%b" % (chain.encode(), name))

    def matches(self, line: bytes, link: ChainLink) -> bool:
        """Return whether a line matches its hash."""
        return hmac.compare_digest(self.digest(line[: link.hashed_end]), link.hash)


class Chain:
    """The writing end of a chain: its random id, its number of lines, and the last line's hash.

    Of an empty chain, `hash` is the genesis.
    """

    __slots__ = ("_key_id", "_new_hash", "count", "hash", "id")

    def __init__(self, hasher: Hasher, id: str, count: int, hash: str) -> None:  # noqa: A002
        self._new_hash = hasher.new_hash
        self._key_id = hasher.key_id
        self.id = id
        self.count = count
        self.hash = hash

    def seal(self, event: str, masked: bool) -> bytes:
        """Return the line of an event, given as JSON without its closing brace."""
        seq = self.count
        first = "" if seq else self._first_line_fields()
        mask = ',"masked":true' if masked else ""
        data = f'{event},"seq":{seq}{first},"prev":"{self.hash}"{mask}'.encode()
        self.count = seq + 1
        self.hash = digest = self._new_hash(data).hexdigest()
        return data + f',"hash":"{digest}"}}\n'.encode()

    def _first_line_fields(self) -> str:
        key = f',"key_id":"{self._key_id}"' if self._key_id else ""
        return f',"chain":"{self.id}"{key}'


def parse_link(line: bytes) -> ChainLink | None:
    """Parse the chain fields of a line (without line feed); return None if it has none."""
    # Quotes inside a string are escaped, so the last match is a key of the line's object.
    start = line.rfind(_SUFFIX_START)
    match = _CHAIN_SUFFIX.fullmatch(line, start) if start > 0 else None
    if match is None:
        return None
    return ChainLink(
        int(match["seq"]),
        (match["chain"] or b"").decode(),
        (match["key"] or b"").decode(),
        match["prev"].decode(),
        match["masked"] is not None,
        match["hash"].decode(),
        start,
        match.start("end"),
    )


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


_MAX_TIME = 2**63 - 1
"""The latest time that a store can hold."""


class _TimeField(msgspec.Struct, frozen=True):
    at: int | None = None


_time_decoder = msgspec.json.Decoder(_TimeField)


def decode_time(line: bytes | str) -> int | None:
    """Return the time of a line's event; None if it has none."""
    try:
        at = _time_decoder.decode(line).at
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return at if at is not None and abs(at) <= _MAX_TIME else None


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


def read_key(file: str | Path) -> bytes:
    """Read the key of keyed hashes: all bytes of the file. Raises `JournalError`."""
    try:
        path = Path(file).expanduser()
        with open_input(path) as content:
            key = content.read(_MAX_KEY_BYTES + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: unknown user in `~name`
        reason = getattr(error, "strerror", None) or error
        raise JournalError(
            hide_address(file),
            f"cannot be read: {reason}",
            "name the file with the key of the journals",
        ) from None
    if not _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        size = (
            f"{len(key)} bytes"
            if len(key) <= _MAX_KEY_BYTES
            else f"more than {_MAX_KEY_BYTES:,} bytes"
        )
        raise JournalError(
            path,
            f"has {size}, but a key has {_MIN_KEY_BYTES} to {_MAX_KEY_BYTES:,}",
            f"make one with: head -c 32 /dev/urandom > {path}",
        )
    return key
