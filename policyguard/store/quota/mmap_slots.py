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
from policyguard.store.paths import ensure_private_file
from policyguard.store.quota.lease import WORDS_PER_SLOT, SlotWords

_SLOT_BYTES = WORDS_PER_SLOT * 8
_SEGMENT_BYTES = 512 * _SLOT_BYTES
"""What is mapped at a time."""


class MmapSlots:
    """The slots of one file, which is made when the first is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._segments: dict[int, SlotWords] = {}

    def find(self, slot: int) -> SlotWords | None:
        """A slot's words; None where the file has no such slot. Raises `StoreError`."""
        try:
            return self._find_words(slot)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._mmap_error(error) from None

    def create(self, slot: int) -> SlotWords:
        """A slot's words, the file grown where it must be. Raises `StoreError`."""
        ensure_private_file(self._path)
        try:
            words = self._find_words(slot, grow=True)
        except OSError as error:
            raise self._mmap_error(error) from None
        assert words is not None  # noqa: S101 - it has just been made
        return words

    def close(self) -> None:
        """Let the file go; what is still in use stays in memory."""
        self._segments.clear()

    def _find_words(self, slot: int, *, grow: bool = False) -> SlotWords | None:
        number, place = divmod(slot * _SLOT_BYTES, _SEGMENT_BYTES)
        part = self._segments.get(number)
        if part is None:
            mapped = self._map_segment(number * _SEGMENT_BYTES, grow=grow)
            if mapped is None:
                return None
            part = self._segments[number] = memoryview(mapped).cast("q")
        return part[place // 8 : place // 8 + WORDS_PER_SLOT]

    def _map_segment(self, start: int, *, grow: bool) -> mmap.mmap | None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            while grow and size < start + _SEGMENT_BYTES:
                size += os.pwrite(descriptor, bytes(start + _SEGMENT_BYTES - size), size)
            if size < start + _SEGMENT_BYTES:
                return None
            return mmap.mmap(descriptor, _SEGMENT_BYTES, offset=start)
        finally:
            os.close(descriptor)

    def _mmap_error(self, error: OSError) -> StoreError:
        return StoreError(
            self._path,
            f"cannot be used: {error.strerror}",
            "see that there is room on its disk, and that it is yours to read and write",
        )
