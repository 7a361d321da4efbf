"""Files of JSON lines that people name: labels, exported constraints and anchors, journals."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from typing import Protocol

MAX_LINE_BYTES = 64 * 1024 * 1024
"""The longest line that is read: a device such as /dev/zero is one endless line."""


class _Readable(Protocol):
    def readline(self, size: int, /) -> bytes: ...


def read_lines(file: _Readable) -> Iterator[bytes]:
    """Yield the lines of a file, with their line feeds. `OSError` for one that is too long."""
    while line := file.readline(MAX_LINE_BYTES):
        if len(line) == MAX_LINE_BYTES:
            raise OSError(
                errno.EFBIG, f"a line has more than {MAX_LINE_BYTES:,} bytes; name a file of lines"
            )
        yield line


def number_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())
