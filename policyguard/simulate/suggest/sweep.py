"""The sweep: every option of every axis, replayed over the exploration runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from policyguard.report.suggest.figures import SweepPoint
from policyguard.simulate.suggest.candidate_path import Combination, ExploredSpace
from policyguard.simulate.suggest.replayed_sessions import SessionResult
from policyguard.simulate.suggest.search_space import Axis

ReplayCombination = Callable[[Combination], list[SessionResult] | None]
"""Replays a combination; returns None if its policy is invalid."""


class Sweep:
    """The masks of sessions that each option refuses.

    Entries refuse independently in observe mode, so one replay covers one option of every axis.
    """

    def __init__(
        self, axes: Sequence[Axis], base: list[SessionResult], exploring: frozenset[int]
    ) -> None:
        self._axes = axes
        self._exploring = exploring
        self._succeeded = self._mask(base, lambda session: session.success is True)
        self._failed = self._mask(base, lambda session: session.success is False)
        everything = self._succeeded | self._failed
        # An invalid option counts as refusing everything.
        self._masks = [[everything] * len(axis.options) for axis in axes]
        self._shown = {(index, 0) for index in range(len(axes))}
        for index, axis in enumerate(axes):
            self._masks[index][0] = self._refused_mask(base, axis)
        self._refused_elsewhere = self._mask(
            base,
            lambda session: any(
                not any(axis.covers(entry) for axis in axes) for entry in session.refused_by
            ),
        )

    def run(self, replay: ReplayCombination) -> ExploredSpace:
        """Replay all options."""
        for option in range(1, max((len(axis.options) for axis in self._axes), default=0)):
            axes = [n for n, axis in enumerate(self._axes) if option < len(axis.options)]
            if not self._replay_option(axes, option, replay):
                for axis in axes:
                    self._replay_option([axis], option, replay)
        return ExploredSpace(self._masks, self._refused_elsewhere, self._succeeded, self._failed)

    def points(self) -> list[SweepPoint]:
        """Return the effect of each option alone, for axes that make a difference."""
        return [
            SweepPoint(
                entry=axis.id,
                setting=dict(option.setting),
                harm=(self._masks[index][number] & self._succeeded).bit_count(),
                catch=(self._masks[index][number] & self._failed).bit_count(),
                is_current=not number,
            )
            for index, axis in enumerate(self._axes)
            if len(set(self._masks[index])) > 1
            for number, option in enumerate(axis.options)
            if (index, number) in self._shown
        ]

    def _replay_option(self, axes: Sequence[int], option: int, replay: ReplayCombination) -> bool:
        sessions = replay(tuple(option if n in axes else 0 for n in range(len(self._axes))))
        if sessions is None:
            return False
        for axis in axes:
            self._masks[axis][option] = self._refused_mask(sessions, self._axes[axis])
            self._shown.add((axis, option))
        return True

    def _refused_mask(self, sessions: list[SessionResult], axis: Axis) -> int:
        return self._mask(sessions, lambda session: any(map(axis.covers, session.refused_by)))

    def _mask(
        self, sessions: list[SessionResult], predicate: Callable[[SessionResult], bool]
    ) -> int:
        return sum(1 << index for index in self._exploring if predicate(sessions[index]))
