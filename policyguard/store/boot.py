"""The machine's boot, which bounds the life of shared memory and of its steady clock."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec


def read_boot_id() -> str:
    """Return an id of the machine's boot; empty if the system has none (macOS)."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def read_time_id() -> str:
    """Return an id of what the time since boot is counted from; empty if the system has none.

    A time namespace of Linux, such as a container may have, counts from another moment.
    """
    boot_id = read_boot_id()
    if not boot_id:
        return ""
    with suppress(OSError):
        boot_id += " " + str(Path("/proc/self/ns/time").readlink())
    return boot_id


class TimeAnchor(msgspec.Struct, frozen=True):
    """How the guards of a store tell the time: it is `offset` ahead of the time since boot (ns).

    `id` is that of `read_time_id`, `latest` the time when a guard was last loaded.
    """

    id: str
    offset: int
    latest: int


def anchor_time(known: TimeAnchor | None, id_: str, offset: int, elapsed: int) -> TimeAnchor:
    """Return the anchor of a guard that is loaded `elapsed` ns after boot.

    It is the known one in the same boot, else `offset`, but no time before the latest known.
    """
    if known is not None:
        # The time since boot runs backwards where a machine is restored from a snapshot.
        if known.id == id_ and elapsed + known.offset >= known.latest:
            offset = known.offset
        offset = max(offset, known.latest - elapsed)
    return TimeAnchor(id_, offset, elapsed + offset)
