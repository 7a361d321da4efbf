"""Every option of every axis, replayed; and what each refuses of the runs to explore with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from policyguard.report.suggestion_figures import PointFigures
from policyguard.simulate.suggest.axes import Axis
from policyguard.simulate.suggest.path import Combination, Explored
from policyguard.simulate.suggest.sessions import Session

Play = Callable[[Combination], list[Session] | None]
"""Replays a combination; None where the policy that it makes cannot be."""


class Sweep:
    """The masks of all options.

    Entries refuse independently in observe mode, so one replay shows an option of each axis.
    """

    def __init__(
        self, axes: Sequence[Axis], base: list[Session], exploring: frozenset[int]
    ) -> None:
        self._axes = axes
        self._exploring = exploring
        self._good = self._bits(base, lambda session: session.success is True)
        self._bad = self._bits(base, lambda session: session.success is False)
        everything = self._good | self._bad
        # An option that cannot be replayed is taken to refuse everything: none is worse.
        self._masks = [[everything] * len(axis.options) for axis in axes]
        self._shown = {(place, 0) for place in range(len(axes))}
        for place, axis in enumerate(axes):
            self._masks[place][0] = self._refused(base, axis)
        self._others = self._bits(
            base,
            lambda session: any(
                not any(axis.refuses(entry) for axis in axes) for entry in session.by
            ),
        )

    def run(self, play: Play) -> Explored:
        """Replay what there is to try."""
        for option in range(1, max((len(axis.options) for axis in self._axes), default=0)):
            places = [n for n, axis in enumerate(self._axes) if option < len(axis.options)]
            if not self._column(places, option, play):
                for place in places:
                    self._column([place], option, play)
        return Explored(self._masks, self._others, self._good, self._bad)

    def points(self) -> list[PointFigures]:
        """What each option does by itself, where its axis makes a difference at all."""
        return [
            PointFigures(
                entry=axis.id,
                setting=dict(option.setting),
                harm=(self._masks[place][number] & self._good).bit_count(),
                catch=(self._masks[place][number] & self._bad).bit_count(),
                now=not number,
            )
            for place, axis in enumerate(self._axes)
            if len(set(self._masks[place])) > 1
            for number, option in enumerate(axis.options)
            if (place, number) in self._shown
        ]

    def _column(self, places: Sequence[int], option: int, play: Play) -> bool:
        tried = tuple(option if n in places else 0 for n in range(len(self._axes)))
        sessions = play(tried)
        if sessions is None:
            return False
        for place in places:
            self._masks[place][option] = self._refused(sessions, self._axes[place])
            self._shown.add((place, option))
        return True

    def _refused(self, sessions: list[Session], axis: Axis) -> int:
        return self._bits(sessions, lambda session: any(map(axis.refuses, session.by)))

    def _bits(self, sessions: list[Session], wanted: Callable[[Session], bool]) -> int:
        bits = 0
        for place in self._exploring:
            if wanted(sessions[place]):
                bits |= 1 << place
        return bits
