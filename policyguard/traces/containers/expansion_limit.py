"""Limits on the expansion of compressed input: enough for recordings, too little for zip bombs.

The limits are per input file on disk and include everything inside it, at any depth.
"""

from __future__ import annotations

from policyguard.traces.item import UnreadableError

MIB = 1 << 20

MAX_RATIO = 250
"""Expanded size divided by file size. Recordings reach 5 to 50, long logs of similar requests up to
200; deflate alone can reach 1032, zstd 32,768."""

MIN_LIMIT_BYTES = 16 * MIB
"""Bytes that every file may expand to, however small."""

MAX_LIMIT_BYTES = 4096 * MIB
"""Bytes that no file may exceed, however large."""

BUFFER_BYTES = 256 * MIB
"""The largest part of an expanded file held in memory: a document, a line, or an archive inside an
archive. Shorter lines are streamed."""

MAX_NESTING = 4
"""Layers of compression and archives inside one another: `.tar.gz` is 2, a compressed inspect log
in it 4."""


class TooLargeError(UnreadableError):
    """The limit is exceeded: nothing more of the file or its archive is read."""


class ExpansionLimit:
    """The bytes that an input file of `file_size` bytes may still expand to."""

    def __init__(self, file_size: int) -> None:
        self.max_bytes = min(MAX_LIMIT_BYTES, max(MIN_LIMIT_BYTES, file_size * MAX_RATIO))
        self._remaining = self.max_bytes

    @property
    def is_exhausted(self) -> bool:
        """Return whether the input exceeded the limit."""
        return self._remaining < 0

    def consume(self, amount: int) -> None:
        """Count expanded bytes. Raises `TooLargeError` beyond the limit."""
        self._remaining -= amount
        if self._remaining < 0:
            raise TooLargeError(f"expands to more than {self.max_bytes} bytes, its size's limit")


class StreamMeter:
    """A meter for one stream, which counts once even if it is read several times."""

    def __init__(self, limit: ExpansionLimit) -> None:
        self._limit = limit
        self._furthest = 0

    def advance_to(self, position: int) -> None:
        """Count the stream up to this position (bytes). Raises `TooLargeError`."""
        if position > self._furthest:
            growth, self._furthest = position - self._furthest, position
            self._limit.consume(growth)
