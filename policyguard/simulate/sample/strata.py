"""Strata of recorded sessions: how many there are of each agent and outcome, and which come first.

Strata of parts of a recording add up to those of the whole, in any order; their size is bounded.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator
from typing import NamedTuple

MIN_DRAWN = 10
"""Sessions of a stratum that a sample has at least, if there are so many."""
_MAX_AGENTS = 100
"""Agents with strata of their own, those whose names have the lowest hashes; the others share."""


class Stratum(NamedTuple):
    """Sessions of one agent with one outcome; `agent` is None for all without their own strata."""

    agent: str | None
    success: bool | None

    @property
    def sort_key(self) -> tuple[bool, str, int]:
        """By agent, the shared ones last; successes first."""
        return self.agent is None, self.agent or "", (True, False, None).index(self.success)


class Strata:
    """Counts of session trees by stratum, and the lowest numbers of each; and of events read."""

    def __init__(self) -> None:
        self.events = 0
        self._sizes: dict[Stratum, int] = {}
        self._lowest: dict[Stratum, list[int]] = {}  # heaps of negated numbers
        self._agents: list[tuple[int, str]] = []  # a heap, by negated hash
        self._own: set[str] = set()

    @property
    def agents(self) -> frozenset[str]:
        """The agents with strata of their own."""
        return frozenset(self._own)

    def add(self, agent: str, success: bool | None, number: int) -> None:
        """Count a session tree, with the number that decides whether it is drawn."""
        self._add(self._admit(agent), success, 1, [-number])

    def merge(self, other: Strata) -> None:
        """Add the strata of another part of the recording."""
        self.events += other.events
        for stratum, size in other._sizes.items():
            agent = None if stratum.agent is None else self._admit(stratum.agent)
            self._add(agent, stratum.success, size, other._lowest[stratum])

    def sizes(self) -> Iterator[tuple[Stratum, int]]:
        """Yield the strata with their sizes, sorted."""
        return iter(sorted(self._sizes.items(), key=lambda item: item[0].sort_key))

    def drawn_numbers(self) -> frozenset[int]:
        """Return the lowest numbers of all strata."""
        return frozenset(-number for numbers in self._lowest.values() for number in numbers)

    def _add(self, agent: str | None, success: bool | None, size: int, numbers: list[int]) -> None:
        stratum = Stratum(agent, success)
        self._sizes[stratum] = self._sizes.get(stratum, 0) + size
        lowest = self._lowest.setdefault(stratum, [])
        for number in numbers:
            if len(lowest) < MIN_DRAWN:
                heapq.heappush(lowest, number)
            else:
                heapq.heappushpop(lowest, number)

    def _admit(self, agent: str) -> str | None:
        """Return the agent of a stratum; one beyond those with the lowest hashes has none."""
        if agent in self._own:
            return agent
        entry = (-_hash(agent), agent)
        self._own.add(agent)
        if len(self._own) <= _MAX_AGENTS:
            heapq.heappush(self._agents, entry)
            return agent
        dropped = heapq.heappushpop(self._agents, entry)[1]
        self._own.discard(dropped)
        if dropped == agent:
            return None
        for stratum in [stratum for stratum in self._sizes if stratum.agent == dropped]:
            size, lowest = self._sizes.pop(stratum), self._lowest.pop(stratum)
            self._add(None, stratum.success, size, lowest)
        return agent


def find_stratum(agents: frozenset[str], agent: str, success: bool | None) -> Stratum:
    """Return the stratum of a session, by the agents that have their own."""
    return Stratum(agent if agent in agents else None, success)


def _hash(agent: str) -> int:
    name = agent.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest())
