"""The key of a journal's hashes, in a file: who writes and who verifies read it alike."""

from __future__ import annotations

from pathlib import Path

from policyguard.journal.errors import JournalError

_MIN_BYTES, _MAX_BYTES = 16, 65_536
"""Bytes. The id of the key stands in each journal: a shorter one could be guessed from it. What is
longer is no key, but a device or a file that was meant by nobody."""


def read_key(file: str | Path) -> bytes:
    """All bytes of the file, a line feed at its end too. Raises `JournalError`."""
    try:
        path = Path(file).expanduser()
        with path.open("rb") as content:
            key = content.read(_MAX_BYTES + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody has that home
        reason = getattr(error, "strerror", None) or error
        raise JournalError(
            Path(file), f"cannot be read: {reason}", "name a file with the key of the journals"
        ) from None
    if not _MIN_BYTES <= len(key) <= _MAX_BYTES:
        has = f"{len(key)} bytes" if len(key) <= _MAX_BYTES else f"more than {_MAX_BYTES:,} bytes"
        raise JournalError(
            path,
            f"has {has} where a key has {_MIN_BYTES} to {_MAX_BYTES:,}",
            "put random bytes into it: head -c 32 /dev/urandom",
        )
    return key
