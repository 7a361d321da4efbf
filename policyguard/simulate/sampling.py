"""`--sample`: a share of the sessions, drawn by their ids, with their sub-agents."""

from __future__ import annotations

import hashlib

from policyguard.model.event import Event, SessionStarted
from policyguard.traces.item import TraceError

OPTION = "--sample"
_REMEMBERED = 100_000
"""Sessions whose choice is remembered, for their sub-agents."""
_BITS = 64


class SessionSample:
    """Chooses sessions: the same ones in every process, and more of them for a larger share.

    A sub-agent goes with its parent. Equal ids in different files are different sessions.
    """

    def __init__(self, share: float) -> None:
        self._limit = int(share * 2**_BITS)
        self._chosen: dict[str, bool] = {}
        self._file = b""

    def begin(self, file: str) -> None:
        """Begin a file, or files that are read as one."""
        self._file = file.encode("utf-8", "surrogatepass")
        self._chosen.clear()

    def __call__(self, event: Event) -> bool:
        """Return whether an event's session is in the sample."""
        session = event.session
        chosen = self._chosen.get(session)
        if chosen is None:
            parent = event.parent if isinstance(event, SessionStarted) else ""
            known = self._chosen.get(parent) if parent else None
            chosen = self._draw(parent or session) if known is None else known
            self._chosen[session] = chosen
            if len(self._chosen) > _REMEMBERED:
                del self._chosen[next(iter(self._chosen))]
        return chosen

    def _draw(self, session: str) -> bool:
        key = self._file + b"\0" + session.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(key, digest_size=_BITS // 8).digest()
        return int.from_bytes(digest) < self._limit


def parse_share(text: str) -> float:
    """Parse `1%` or `0.01`. Raises `TraceError`."""
    number, is_percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if is_percent else 1)
    except ValueError:
        share = 0.0
    if rest or not 0 < share <= 1:
        raise TraceError(f"{OPTION}: `{text:.40}` is no share of the sessions; write 1% or 0.01")
    return share
