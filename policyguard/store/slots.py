"""A file that all processes of a store have in their memory: words of 8 bytes, by slots.

A word that is written is there for everybody at once, and stays when the writer is killed. The
file only grows, and room for it is made by writing: a full disk is an error here, not a signal at
some later time.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from policyguard.store.errors import StoreError
from policyguard.store.place import private_file
from policyguard.store.share import WORDS, Words

_SLOT_BYTES = WORDS * 8
_PART_BYTES = 512 * _SLOT_BYTES
"""What is mapped at a time."""


class Slots:
    """The slots of one file, which is made when the first is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: dict[int, Words] = {}

    def find(self, slot: int) -> Words | None:
        """A slot's words; None where the file has no such slot. Raises `StoreError`."""
        try:
            return self._words(slot)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from None

    def make(self, slot: int) -> Words:
        """A slot's words, the file grown where it must be. Raises `StoreError`."""
        private_file(self._path)
        try:
            words = self._words(slot, grow=True)
        except OSError as error:
            raise self._unusable(error) from None
        assert words is not None  # noqa: S101 - it has just been made
        return words

    def close(self) -> None:
        """Let the file go; what is still in use stays in memory."""
        self._parts.clear()

    def _words(self, slot: int, *, grow: bool = False) -> Words | None:
        number, place = divmod(slot * _SLOT_BYTES, _PART_BYTES)
        part = self._parts.get(number)
        if part is None:
            mapped = self._mapped(number * _PART_BYTES, grow=grow)
            if mapped is None:
                return None
            part = self._parts[number] = memoryview(mapped).cast("q")
        return part[place // 8 : place // 8 + WORDS]

    def _mapped(self, start: int, *, grow: bool) -> mmap.mmap | None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            while grow and size < start + _PART_BYTES:
                size += os.pwrite(descriptor, bytes(start + _PART_BYTES - size), size)
            if size < start + _PART_BYTES:
                return None
            return mmap.mmap(descriptor, _PART_BYTES, offset=start)
        finally:
            os.close(descriptor)

    def _unusable(self, error: OSError) -> StoreError:
        return StoreError(
            self._path,
            f"cannot be used: {error.strerror}",
            "see that there is room on its disk, and that it is yours to read and write",
        )
