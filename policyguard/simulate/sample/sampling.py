"""`--sample`: a share of the sessions, drawn by their ids, with their sub-agents.

Of each stratum (agent and outcome) at least some are drawn, however small the share.
"""

from __future__ import annotations

import hashlib

import msgspec

from policyguard.model.event import Event, SessionEnded, SessionStarted
from policyguard.simulate.sample.strata import Stratum
from policyguard.traces.item import TraceError

OPTION = "--sample"
_REMEMBERED = 100_000
"""Open sessions whose number is remembered, and ended ones with parents, for their sub-agents."""
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

    A sub-agent has the number of its parent, also of one that has ended. Equal ids in different
    files differ.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._ended_children: dict[str, int] = {}
        self._file = b""

    def begin(self, file: str) -> None:
        """Begin a file, or files that are read as one."""
        self._file = file.encode("utf-8", "surrogatepass")
        self._numbers.clear()
        self._ended_children.clear()

    def __call__(self, event: Event) -> int:
        """Return the number of an event's session, below 2 to the power of 64."""
        session = event.session
        number = self._numbers.get(session)
        if number is None:
            parent = event.parent if isinstance(event, SessionStarted) else ""
            number = self._find(parent) if parent else self._hash(session)
            _remember(self._numbers, session, number)
        if isinstance(event, SessionEnded):
            del self._numbers[session]
            self._ended_children.pop(session, None)
            if number != self._hash(session):
                _remember(self._ended_children, session, number)
        return number

    def _find(self, parent: str) -> int:
        number = self._numbers.get(parent)
        if number is None:
            number = self._ended_children.get(parent)
        return self._hash(parent) if number is None else number

    def _hash(self, session: str) -> int:
        key = self._file + b"\0" + session.encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(key, digest_size=_BITS // 8).digest())


def _remember(numbers: dict[str, int], session: str, number: int) -> None:
    numbers[session] = number
    if len(numbers) > _REMEMBERED:
        del numbers[next(iter(numbers))]


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
