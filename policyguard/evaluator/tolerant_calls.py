"""The calls of a session whose numbers may differ a little and still be the same call."""

from __future__ import annotations

from collections.abc import Callable

Numbers = tuple[float, ...]


class TolerantCalls:
    """Calls by their fingerprint without numbers: the numbers and fingerprint of each kind's first.

    Numbers are compared with the first call of their kind, so they cannot drift step by step.
    """

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[str, list[tuple[Numbers, str]]] = {}

    def match(
        self,
        fingerprint: str,
        loose: str,
        numbers: Numbers,
        within_tolerance: Callable[[Numbers, Numbers], bool],
    ) -> str:
        """Return the fingerprint of the earlier call whose numbers are close, else the call's."""
        for known_numbers, known_fingerprint in self._calls.get(loose, ()):
            if within_tolerance(known_numbers, numbers):
                return known_fingerprint
        return fingerprint

    def remember(self, fingerprint: str, loose: str, numbers: Numbers, max_entries: int) -> None:
        """Keep an admitted call; of too many the oldest are forgotten."""
        calls = self._calls.pop(loose, [])
        self._calls[loose] = calls
        if all(known != fingerprint for _, known in calls):
            calls.append((numbers, fingerprint))
            if len(calls) > max_entries:
                del calls[0]
        if len(self._calls) > max_entries:
            del self._calls[next(iter(self._calls))]
