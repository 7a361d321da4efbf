"""How much a compressed input may grow: enough for any recording, and too little for a bomb.

The limits are per input file. What an archive holds, and what is packed inside its members, all
counts against the one allowance of the file that lies on the disk.
"""

from __future__ import annotations

from policyguard.traces.item import UnreadableError

MIB = 1 << 20

MAX_RATIO = 250
"""How many times its own size a file may expand to. Recordings are at 5 to 50, a long log of
requests that repeat one another at up to 200; deflate alone can reach 1032, zstd 32,768."""

MIN_LIMIT_BYTES = 16 * MIB
"""What any file may expand to, however small it is: bytes."""

MAX_LIMIT_BYTES = 4096 * MIB
"""What no file may expand beyond, however large it is: bytes."""

MAX_BUFFERED_BYTES = 256 * MIB
"""The largest part of an expanded file that is held in memory at once: a document, a line, or an
archive inside an archive. Lines of less are streamed, up to `MOST_BYTES` of them."""

MAX_NESTING = 4
"""How often something may be packed inside something packed: `.tar.gz` is 2, an inspect log in it
that is compressed once more 4."""


class TooLargeError(UnreadableError):
    """The allowance is used up: neither this file nor any other of its archive is read further."""


class ExpansionLimit:
    """The bytes that one input file may still expand to. `packed` is its size on the disk."""

    def __init__(self, file_size: int) -> None:
        self.max_bytes = min(MAX_LIMIT_BYTES, max(MIN_LIMIT_BYTES, file_size * MAX_RATIO))
        self._remaining = self.max_bytes

    @property
    def is_exhausted(self) -> bool:
        """Whether something has asked for more than there was."""
        return self._remaining < 0

    def consume(self, amount: int) -> None:
        """Bytes that came out. Raises `TooLargeError` where they are too many."""
        self._remaining -= amount
        if self._remaining < 0:
            reason = (
                f"expands to more than {self.max_bytes} bytes: as large as it may be by its size"
            )
            raise TooLargeError(reason)


class StreamMeter:
    """Counts one stream that may be read more than once from its beginning, but counts once."""

    def __init__(self, limit: ExpansionLimit) -> None:
        self._limit = limit
        self._furthest = 0

    def advance_to(self, position: int) -> None:
        """The stream has come to this position (bytes). Raises `TooLargeError`."""
        if position > self._furthest:
            beyond, self._furthest = position - self._furthest, position
            self._limit.consume(beyond)
