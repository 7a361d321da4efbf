"""The sweep: every option of every axis, replayed over the exploration runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from policyguard.model.limits import limit_kind
from policyguard.report.suggest.figures import SweepPoint
from policyguard.simulate.suggest.candidate_path import ExploredSpace
from policyguard.simulate.suggest.override_layer import Entries
from policyguard.simulate.suggest.search_space import Axis, Choice, covers_entry, pack_options
from policyguard.simulate.suggest.session_results import SessionResult

ReplayEntries = Callable[[Entries], list[SessionResult] | None]
"""Replays the policy with these entries; returns None if it is invalid."""


class Sweep:
    """The masks of sessions that each option refuses, among those at the indices `replayed`.

    Entries refuse independently in observe mode, so one replay covers many options, side by side.
    """

    def __init__(
        self, axes: Sequence[Axis], base: list[SessionResult], replayed: frozenset[int]
    ) -> None:
        self._axes = axes
        self._replayed = replayed
        self._succeeded = self._mask(base, lambda session: session.success is True)
        self._failed = self._mask(base, lambda session: session.success is False)
        everything = self._succeeded | self._failed
        # An invalid option counts as refusing everything.
        self._masks = [[everything] * len(axis.options) for axis in axes]
        self._shown = {(index, 0) for index in range(len(axes))}
        for index, axis in enumerate(axes):
            self._masks[index][0] = self._refused_mask(base, axis.id)
        self._refused_elsewhere = self._mask(
            base,
            lambda session: any(
                not _follows_refusals(entry)
                and not any(covers_entry(axis.id, entry) for axis in axes)
                for entry in session.refused_by
            ),
        )

    def run(
        self, replay: ReplayEntries, choices: Collection[Choice] | None = None
    ) -> ExploredSpace:
        """Replay options: by default all, but for those that the policy has."""
        if choices is None:
            choices = [
                (axis, option)
                for axis in range(len(self._axes))
                for option in range(1, len(self._axes[axis].options))
            ]
        self._replay_options(list(choices), replay)
        return ExploredSpace(self._masks, self._refused_elsewhere, self._succeeded, self._failed)

    def has_replayed(self, choices: Collection[Choice]) -> bool:
        """Return whether all these options were part of a valid policy."""
        return self._shown.issuperset(choices)

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

    def _replay_options(self, choices: Sequence[Choice], replay: ReplayEntries) -> None:
        for packed in pack_options(self._axes, choices):
            sessions = replay(packed.entries)
            if sessions is not None:
                for (axis, option), id_ in packed.ids.items():
                    self._masks[axis][option] = self._refused_mask(sessions, id_)
                    self._shown.add((axis, option))
            elif len(packed.ids) > 1:
                parts = list(packed.ids)
                middle = len(parts) // 2
                self._replay_options(parts[:middle], replay)
                self._replay_options(parts[middle:], replay)

    def _refused_mask(self, sessions: list[SessionResult], id_: str) -> int:
        return self._mask(
            sessions,
            lambda session: any(covers_entry(id_, entry) for entry in session.refused_by),
        )

    def _mask(
        self, sessions: list[SessionResult], predicate: Callable[[SessionResult], bool]
    ) -> int:
        return sum(1 << index for index in self._replayed if predicate(sessions[index]))


def _follows_refusals(entry: str) -> bool:
    """Return whether an entry refuses only calls that others refuse."""
    return limit_kind(entry) == "refusals"
