"""A file of 8-byte words, in slots, that all processes of a store map into memory.

A written word is visible to all at once, and survives its writer's death. The file only grows, by
writing zeros, so that a full disk raises an error here instead of a signal later.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from policyguard.engines.operating_system import O_CLOEXEC
from policyguard.store.errors import StoreError
from policyguard.store.paths import ensure_private_file
from policyguard.store.quota.lease import WORDS_PER_SLOT, SlotWords

_SLOTS_PER_SEGMENT = 512
_SEGMENT_BYTES = _SLOTS_PER_SEGMENT * WORDS_PER_SLOT * 8
"""The size of one mapping."""


class MmapSlots:
    """The slots of one file, created with the first slot; `read_only` ones cannot be written."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._segments: dict[int, SlotWords] = {}

    def find(self, slot: int) -> SlotWords | None:
        """Return a slot's words; None if the file lacks the slot. Raises `StoreError`."""
        try:
            return self._find_words(slot)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._mmap_error(error) from None

    def create(self, slot: int) -> SlotWords:
        """Return a slot's words, growing the file if needed. Raises `StoreError`."""
        ensure_private_file(self._path)
        try:
            words = self._find_words(slot, grow=True)
        except OSError as error:
            raise self._mmap_error(error) from None
        assert words is not None  # noqa: S101 - the file has grown
        return words

    def close(self) -> None:
        """Unmap the file; words in use stay valid."""
        self._segments.clear()

    def _find_words(self, slot: int, *, grow: bool = False) -> SlotWords | None:
        number, index = divmod(slot, _SLOTS_PER_SEGMENT)
        segment = self._segments.get(number)
        if segment is None:
            mapped = self._map_segment(number * _SEGMENT_BYTES, grow=grow)
            if mapped is None:
                return None
            segment = self._segments[number] = memoryview(mapped).cast("q")
        return segment[index * WORDS_PER_SLOT : (index + 1) * WORDS_PER_SLOT]

    def _map_segment(self, start: int, *, grow: bool) -> mmap.mmap | None:
        mode = os.O_RDONLY if self._read_only else os.O_RDWR
        descriptor = os.open(self._path, mode | O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            while grow and size < start + _SEGMENT_BYTES:
                size += os.pwrite(descriptor, bytes(start + _SEGMENT_BYTES - size), size)
            if size < start + _SEGMENT_BYTES:
                return None
            access = mmap.ACCESS_READ if self._read_only else mmap.ACCESS_WRITE
            return mmap.mmap(descriptor, _SEGMENT_BYTES, access=access, offset=start)
        finally:
            os.close(descriptor)

    def _mmap_error(self, error: OSError) -> StoreError:
        return StoreError(
            self._path,
            f"cannot be used: {error.strerror}",
            "check that its disk has room and that you can read and write it",
        )
