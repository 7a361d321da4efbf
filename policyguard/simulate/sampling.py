"""`--sample`: a share of the sessions, drawn by their ids, with their sub-agents.

Of each stratum (agent and outcome) at least some are drawn, however small the share.
"""

from __future__ import annotations

import hashlib

import msgspec

from policyguard.model.event import Event, SessionStarted
from policyguard.simulate.strata import Stratum
from policyguard.traces.item import TraceError

OPTION = "--sample"
_REMEMBERED = 100_000
"""Sessions whose number is remembered, for their sub-agents."""
_BITS = 64


class Draw(msgspec.Struct, frozen=True):
    """What a sample is drawn from: the strata, and the numbers drawn beside the share.

    `agents` are those with strata of their own, `sizes` counts the session trees of each stratum.
    """

    agents: frozenset[str] = frozenset()
    sizes: tuple[tuple[Stratum, int], ...] = ()
    numbers: frozenset[int] = frozenset()


class SessionNumbers:
    """Numbers sessions by a hash of their file and id: the same in every process.

    A sub-agent has the number of its parent. Equal ids in different files differ.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._file = b""

    def begin(self, file: str) -> None:
        """Begin a file, or files that are read as one."""
        self._file = file.encode("utf-8", "surrogatepass")
        self._numbers.clear()

    def __call__(self, event: Event) -> int:
        """Return the number of an event's session, below 2 to the power of 64."""
        session = event.session
        number = self._numbers.get(session)
        if number is None:
            parent = event.parent if isinstance(event, SessionStarted) else ""
            known = self._numbers.get(parent) if parent else None
            number = self._hash(parent or session) if known is None else known
            self._numbers[session] = number
            if len(self._numbers) > _REMEMBERED:
                del self._numbers[next(iter(self._numbers))]
        return number

    def _hash(self, session: str) -> int:
        key = self._file + b"\0" + session.encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(key, digest_size=_BITS // 8).digest())


class SessionSample:
    """Chooses sessions: more of them for a larger share, and the same ones in every process."""

    def __init__(self, share: float, draw: Draw) -> None:
        self._limit = int(share * 2**_BITS)
        self.draw = draw
        self._drawn = draw.numbers
        self._number = SessionNumbers()
        self.begin = self._number.begin

    def __call__(self, event: Event) -> bool:
        """Return whether an event's session is in the sample."""
        number = self._number(event)
        return number < self._limit or number in self._drawn


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
