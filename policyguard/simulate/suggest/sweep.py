"""Every option of every axis, replayed; and what each refuses of the runs to explore with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from policyguard.report.suggest.figures import SweepPoint
from policyguard.simulate.suggest.candidate_path import Combination, ExploredSpace
from policyguard.simulate.suggest.replayed_sessions import SessionResult
from policyguard.simulate.suggest.search_space import Axis

ReplayCombination = Callable[[Combination], list[SessionResult] | None]
"""Replays a combination; None where the policy that it makes cannot be."""


class Sweep:
    """The masks of all options.

    Entries refuse independently in observe mode, so one replay shows an option of each axis.
    """

    def __init__(
        self, axes: Sequence[Axis], base: list[SessionResult], exploring: frozenset[int]
    ) -> None:
        self._axes = axes
        self._exploring = exploring
        self._succeeded = self._mask(base, lambda session: session.success is True)
        self._failed = self._mask(base, lambda session: session.success is False)
        everything = self._succeeded | self._failed
        # An option that cannot be replayed is taken to refuse everything: none is worse.
        self._masks = [[everything] * len(axis.options) for axis in axes]
        self._shown = {(place, 0) for place in range(len(axes))}
        for place, axis in enumerate(axes):
            self._masks[place][0] = self._refused_mask(base, axis)
        self._refused_elsewhere = self._mask(
            base,
            lambda session: any(
                not any(axis.covers(entry) for axis in axes) for entry in session.refused_by
            ),
        )

    def run(self, replay: ReplayCombination) -> ExploredSpace:
        """Replay what there is to try."""
        for option in range(1, max((len(axis.options) for axis in self._axes), default=0)):
            places = [n for n, axis in enumerate(self._axes) if option < len(axis.options)]
            if not self._replay_option(places, option, replay):
                for place in places:
                    self._replay_option([place], option, replay)
        return ExploredSpace(self._masks, self._refused_elsewhere, self._succeeded, self._failed)

    def points(self) -> list[SweepPoint]:
        """What each option does by itself, where its axis makes a difference at all."""
        return [
            SweepPoint(
                entry=axis.id,
                setting=dict(option.setting),
                harm=(self._masks[place][number] & self._succeeded).bit_count(),
                catch=(self._masks[place][number] & self._failed).bit_count(),
                is_current=not number,
            )
            for place, axis in enumerate(self._axes)
            if len(set(self._masks[place])) > 1
            for number, option in enumerate(axis.options)
            if (place, number) in self._shown
        ]

    def _replay_option(self, places: Sequence[int], option: int, replay: ReplayCombination) -> bool:
        tried = tuple(option if n in places else 0 for n in range(len(self._axes)))
        sessions = replay(tried)
        if sessions is None:
            return False
        for place in places:
            self._masks[place][option] = self._refused_mask(sessions, self._axes[place])
            self._shown.add((place, option))
        return True

    def _refused_mask(self, sessions: list[SessionResult], axis: Axis) -> int:
        return self._mask(sessions, lambda session: any(map(axis.covers, session.refused_by)))

    def _mask(
        self, sessions: list[SessionResult], predicate: Callable[[SessionResult], bool]
    ) -> int:
        bits = 0
        for place in self._exploring:
            if predicate(sessions[place]):
                bits |= 1 << place
        return bits
