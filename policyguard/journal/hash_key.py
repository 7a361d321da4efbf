"""The key file of keyed hashes, read alike for writing and verifying."""

from __future__ import annotations

from pathlib import Path

from policyguard.journal.errors import JournalError

_MIN_BYTES, _MAX_BYTES = 16, 65_536
"""From the key's id, which each journal holds, a shorter key could be guessed. A longer file is a
device or a mistake."""


def read_key(file: str | Path) -> bytes:
    """Return all bytes of the file, including a final line feed. Raises `JournalError`."""
    try:
        path = Path(file).expanduser()
        with path.open("rb") as content:
            key = content.read(_MAX_BYTES + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: unknown user in `~name`
        reason = getattr(error, "strerror", None) or error
        raise JournalError(
            Path(file), f"cannot be read: {reason}", "name the file with the key of the journals"
        ) from None
    if not _MIN_BYTES <= len(key) <= _MAX_BYTES:
        size = f"{len(key)} bytes" if len(key) <= _MAX_BYTES else f"more than {_MAX_BYTES:,} bytes"
        raise JournalError(
            path,
            f"has {size}, but a key has {_MIN_BYTES} to {_MAX_BYTES:,}",
            f"make one with: head -c 32 /dev/urandom > {path}",
        )
    return key
