"""What recorded sessions teach, as plain values that can be sent to another process."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from policyguard.model.constraint import Observation
from policyguard.traces import Skipped

Place = tuple[int, int, int]
"""A file, a trace in it, and a line: where something stands among all recordings."""
_PACKED_STEPS = 1024


class Started(msgspec.Struct, frozen=True):
    """A session starts, or starts anew. `session` is its id in the recording."""

    place: Place
    session: str


class Ended(msgspec.Struct, frozen=True):
    """A session is over."""

    place: Place
    session: str


class Learned(msgspec.Struct, frozen=True):
    """What the outcome of a call at `at` (ns) teaches.

    `is_own`: the scope holds the id of the session, whose recording names no other owner.
    """

    place: Place
    session: str
    call: str
    at: int | None
    is_own: bool
    observation: Observation

    @property
    def keys(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The scope with the key that a constraint is found by, and with that of evidence."""
        observation = self.observation
        scope = observation.scope
        return (scope, observation.key), (scope, observation.evidence_key)


Step = Started | Learned | Ended
"""Something that a session did to what is learned."""


class PlacedSkip(NamedTuple):
    """What was not read, and where."""

    place: Place
    item: Skipped


class FailureSummary:
    """The keys that failures taught something of, and the ids of their sessions (`id_root`)."""

    events = 0

    def __init__(self, keys: set[tuple[str, str]], id_roots: set[str]) -> None:
        self.keys = keys
        self.id_roots = id_roots

    def merge(self, other: FailureSummary) -> None:
        """Add the failures of another part."""
        self.keys |= other.keys
        self.id_roots |= other.id_roots


class Observations:
    """What the sessions of a part teach. Successes are packed: most of them will be dropped."""

    def __init__(self) -> None:
        self.events = 0
        self.skipped: list[PlacedSkip] = []
        self._started: list[Started] = []
        self._steps: list[Learned | Ended] = []
        self._successes: list[Learned] = []
        self._packed: list[bytes] = []

    def add(self, step: Step) -> None:
        """Add what a session did."""
        if isinstance(step, Started):
            self._started.append(step)
        elif isinstance(step, Learned) and step.observation.ok:
            self._successes.append(step)
            if len(self._successes) == _PACKED_STEPS:
                self._pack()
        else:
            self._steps.append(step)

    def skip(self, place: Place, item: Skipped) -> None:
        """Add what was not read."""
        self.skipped.append(PlacedSkip(place, item))

    def merge(self, other: Observations) -> None:
        """Add those of another part."""
        self.events += other.events
        self.skipped += other.skipped
        self._started += other._started
        self._steps += other._steps
        self._successes += other._successes
        self._packed += other._packed

    def summarize(self) -> FailureSummary:
        """Return what failed here."""
        failures = [step for step in self._steps if isinstance(step, Learned)]
        keys = {key for step in failures for key in step.keys}
        return FailureSummary(keys, {id_root(step.session) for step in failures})

    def narrow(self, summary: FailureSummary) -> Observations:
        """Return what can matter if these are all failures.

        A success refutes failures of its own keys, and a session gets another id only for others
        of its root.
        """
        self._successes = [
            step for step in self._iter_successes() if not summary.keys.isdisjoint(step.keys)
        ]
        self._packed = []
        self._started = [
            step for step in self._started if id_root(step.session) in summary.id_roots
        ]
        return self

    def steps(self) -> list[Step]:
        """Return all steps, in the order of the recordings."""
        steps: list[Step] = [*self._started, *self._steps, *self._iter_successes()]
        steps.sort(key=lambda step: step.place)
        return steps

    def _iter_successes(self) -> Iterator[Learned]:
        for packed in self._packed:
            yield from pickle.loads(zlib.decompress(packed))  # noqa: S301 - ours
        yield from self._successes

    def _pack(self) -> None:
        self._packed.append(zlib.compress(pickle.dumps(self._successes), 1))
        self._successes = []


def id_root(session: str) -> str:
    """Return the part of an id that is left whatever number it gets: see `convert_traces`."""
    return session.partition("#")[0]
