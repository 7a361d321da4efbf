"""The chain: each line is hashed with all its bytes, among them the hash of the one before.

What a journal adds to an event stands at the end of its line, in this order:

    …,"seq":0,"chain":"<random id>","key_id":"<id of the key>","prev":"…","masked":true,"hash":"…"}

`seq` counts the lines from 0. `chain` stands in the first line only, `key_id` there too and only
where the hashes are made with a key. `prev` is the hash of the line before; in the first line it
is derived from the session and the chain's id, so that no line of another chain fits. `masked`
says that arguments or results stand there otherwise than they were. `hash` is the SHA-256 (with a
key: HMAC-SHA-256, RFC 2104) of all the line's bytes before `,"hash"`.
"""

from __future__ import annotations

import hmac
import re
from functools import partial
from hashlib import sha256

import msgspec

CHAIN_FIELDS = ("seq", "chain", "key_id", "prev", "masked", "hash")
"""The names that a journal adds, in the order in which they stand."""

_CHAIN_SUFFIX = re.compile(
    rb',"seq":(?P<seq>0|[1-9][0-9]{0,17})'
    rb'(?:,"chain":"(?P<chain>[0-9a-f]{32})"(?:,"key_id":"(?P<key>[0-9a-f]{16})")?)?'
    rb',"prev":"(?P<prev>[0-9a-f]{64})"'
    rb'(?P<masked>,"masked":true)?'
    rb'(?P<end>,"hash":"(?P<hash>[0-9a-f]{64})"\})'
)
_SUFFIX_START = b',"seq":'
HASH_BYTES = len(b'"hash":"') + 64 + len(b'"}\n')
"""How many bytes at the end of a line, its line feed included, hold its hash."""


class ChainLink(msgspec.Struct, frozen=True):
    """What a line says of its place in a chain.

    `chain` and `key` (its id) are empty but in a first line. `event` is where the event ends in
    the line's bytes, `hashed` where what is hashed does.
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
    """How lines are hashed: anybody can (no key), or only who has the key."""

    def __init__(self, key: bytes | None = None) -> None:
        self.new_hash = sha256 if key is None else partial(hmac.new, key, digestmod="sha256")
        """What takes bytes and has their hash (`hexdigest`)."""
        self.key_id = "" if key is None else self.digest(b"policyguard journal key\0")[:16]
        """Tells keys apart and nothing about them; empty without one."""

    def digest(self, data: bytes) -> str:
        """The hash of bytes, in hex."""
        return self.new_hash(data).hexdigest()

    def genesis(self, session: str, chain: str) -> str:
        """What a chain's first line has in place of the hash of the line before."""
        name = session.encode("utf-8", "surrogatepass")
        return self.digest(b"policyguard journal 1\0%b\0%b" % (chain.encode(), name))

    def matches(self, line: bytes, link: ChainLink) -> bool:
        """Whether a line is as it was when it was hashed."""
        return hmac.compare_digest(self.digest(line[: link.hashed_end]), link.hash)


class Chain:
    """A chain that is being written: each line follows the one before.

    `id` is its random id, `count` how many lines it has, `hash` the last one's hash (of none, the
    genesis).
    """

    __slots__ = ("_key_id", "_new_hash", "count", "hash", "id")

    def __init__(self, hasher: Hasher, id: str, count: int, hash: str) -> None:  # noqa: A002
        self._new_hash = hasher.new_hash
        self._key_id = hasher.key_id
        self.id = id
        self.count = count
        self.hash = hash

    def seal(self, event: str, masked: bool) -> bytes:
        """The line for an event's JSON, given without its last brace, with its line feed."""
        seq = self.count
        begins = "" if seq else self._first_line_fields()
        mask = ',"masked":true' if masked else ""
        data = f'{event},"seq":{seq}{begins},"prev":"{self.hash}"{mask}'.encode()
        self.count = seq + 1
        self.hash = digest = self._new_hash(data).hexdigest()
        return data + f',"hash":"{digest}"}}\n'.encode()

    def _first_line_fields(self) -> str:
        """What stands in the first line only."""
        key = f',"key_id":"{self._key_id}"' if self._key_id else ""
        return f',"chain":"{self.id}"{key}'


def parse_link(line: bytes) -> ChainLink | None:
    """What a line (without its line feed) says of its place; None where it says nothing."""
    # Inside a string the quotes would be escaped, so the last of these is an object's own key.
    begins = line.rfind(_SUFFIX_START)
    found = _CHAIN_SUFFIX.fullmatch(line, begins) if begins > 0 else None
    if found is None:
        return None
    return ChainLink(
        int(found["seq"]),
        (found["chain"] or b"").decode(),
        (found["key"] or b"").decode(),
        found["prev"].decode(),
        found["masked"] is not None,
        found["hash"].decode(),
        begins,
        found.start("end"),
    )
