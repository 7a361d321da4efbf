"""What a proxy takes in at a time."""

from __future__ import annotations

from typing import NamedTuple

_MIB = 1024 * 1024


class ProxyLimits(NamedTuple):
    """Bounds of a proxy: `max_message` in bytes; calls that run, and that wait, at a time.

    They are a client's on stdio, and a server's over HTTP. `idle` is after how many seconds without
    a request a run that the client does not name is taken to be over.
    """

    max_message: int = 32 * _MIB
    max_calls: int = 64
    max_waiting: int = 256
    idle: float = 3600.0
