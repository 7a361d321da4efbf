"""Recorded runs under a policy, and beside it under the one that stood before."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.report.replay.figures import Figures, SkippedFigures
from policyguard.simulate.error_kinds import ReadOrder
from policyguard.simulate.labels import Labels
from policyguard.simulate.line_shard import LineShard
from policyguard.simulate.replayed_policy import ReplayedPolicy
from policyguard.simulate.run import Run
from policyguard.simulate.tally import ReportSize, Tally
from policyguard.simulate.trace_player import Locate, TracePlayer
from policyguard.simulate.unfired import ToolUsage, find_own_entries
from policyguard.traces import Reader, Skipped, TraceFile
from policyguard.traces.formats.native import FORMAT
from policyguard.traces.interleaving import InterleavedFiles
from policyguard.traces.session_trees import SessionTree

_KEY = b"policyguard simulate"


def load(policies: str | Path | Sequence[str | Path]) -> CompiledPolicy:
    """Compile a policy to replay under, as `compile_policy` does.

    Its fingerprints have a known key, so that a report can be made again to the byte: no
    fingerprint stands in a report. For a guard of your own, compile it anew.
    """
    compiled = compile_policy(policies)
    compiled.fingerprinter.rekey(_KEY)
    return compiled


def _warn_skipped(item: Skipped) -> None:
    place = f"{item.file}:{item.line}" if item.line else item.file
    warnings.warn(f"{place}: {item.reason}", stacklevel=3)


class Replay:
    """One replay of a policy over trace files, and what it amounts to.

    In mode `enforce` a refused call's result is not folded in, as it would never have come; with
    `observe` every call counts as it was recorded, refused or not. With a `baseline` each event
    goes through both policies. `heed` is called every now and then between two events, and may
    raise to stop; what there is until then is given by `finish`.
    """

    def __init__(
        self,
        compiled: CompiledPolicy,
        *,
        observe: bool,
        labels: Labels | None,
        baseline: CompiledPolicy | None = None,
        report_size: ReportSize | None = None,
        on_progress: Callable[[], None] | None = None,
        shard: LineShard | None = None,
    ) -> None:
        report_size = report_size or ReportSize()
        sides = [
            ReplayedPolicy(one, observe=observe) for one in (compiled, baseline) if one is not None
        ]
        known = find_own_entries(compiled)
        self._tools = ToolUsage(known)
        self.tally = Tally([side.policy for side in sides], report_size, known)
        self._labels = labels
        self._shard = shard
        see = self._tools.add if known else None
        self._player = TracePlayer(
            sides, timelines=report_size.timelines > 0, on_progress=on_progress, on_tool=see
        )
        self._file_count = 0
        self._pending: list[Run] = []

    @property
    def events(self) -> int:
        """How many events have been read."""
        return self._player.events

    def add(self, trace: TraceFile, order: tuple[int, int] | None = None) -> None:
        """Replay one file. Sessions still open at its end are over.

        `number` is its place among all files, by default after those before.
        """
        self._file_count += 1
        order = order or (self._file_count, 0)
        if self._shard is not None:
            self._shard.begin()
        part = self._shard if trace.format == FORMAT else None
        first = part is None or part.index == 0
        if first:
            self._count_file(trace)

        def skipped(item: Skipped, place: int) -> None:
            if item.line is not None or first:
                self._skip(item, (*order, place))

        line = None if part is None or part.is_whole else lambda: part.line
        self._add_runs(self._player.play(trace, _locator(trace, order), skipped, line))

    def add_tree(self, reader: Reader, files: Sequence[Path], tree: SessionTree) -> None:
        """Replay those of the files that are a family's as one, in the order of their times."""
        if self._shard is not None:
            self._shard.begin(whole=True)
        merged = InterleavedFiles(reader, files, tree, self._count_file)

        def where(place: int) -> tuple[TraceFile, ReadOrder]:
            return merged.trace, (tree.indices[merged.file_index], 0, merged.position)

        def skipped(item: Skipped, place: int) -> None:
            self._skip(item, where(place)[1])

        self._add_runs(self._player.play(merged, where, skipped))

    def finish(self, *, partial: bool = False) -> Figures:
        """The figures, complete. `partial`: of what was read until the replay was stopped."""
        self.stop()
        return self.tally.build_figures(self._labels, partial=partial)

    def stop(self) -> Tally:
        """Count what is still open, and read no more."""
        self._add_runs(self._player.close_all())
        self.tally.traces.events = self._player.events
        self.tally.used_tools = self._tools.used
        return self.tally

    def _count_file(self, trace: TraceFile) -> None:
        traces = self.tally.traces
        if trace.format is not None:
            traces.files += 1
            traces.formats[trace.format] = traces.formats.get(trace.format, 0) + 1

    def _skip(self, item: Skipped, order: ReadOrder) -> None:
        self.tally.skip(order, SkippedFigures(item.file, item.line, item.reason))

    def _add_runs(self, played: Iterable[Run]) -> None:
        for run in played:
            self._add_run(run)
        self._label_pending()

    def _add_run(self, run: Run) -> None:
        """Count a session, unless it may turn out to be its file's only one, and that matters."""
        if self._labels is not None and self._labels.has_file_labels and run.is_first:
            self._pending.append(run)
        else:
            self._label(run, only_session=False)

    def _label_pending(self) -> None:
        held, self._pending = self._pending, []
        several = self._shard is not None and self._shard.has_several_sessions
        for run in held:
            self._label(
                run, only_session=self._player.session_counts[run.order[:-1]] == 1 and not several
            )

    def _label(self, run: Run, *, only_session: bool) -> None:
        if self._labels is not None:
            places, success = self._labels.find(run.id, run.file, only_session=only_session)
            self.tally.matched_labels.update(places)
            if success is not None:
                if run.success is not None and run.success is not success:
                    self.tally.labels.disagree += 1
                run.success = success
        self.tally.add(run)


def runs(
    compiled: CompiledPolicy,
    traces: Iterable[TraceFile],
    *,
    observe: bool = False,
    on_skipped: Callable[[Skipped], None] = _warn_skipped,
) -> Iterator[Run]:
    """The sessions of some files under one policy, each as soon as it has ended.

    `skipped` is told what was not read; by default that is a warning.
    """
    player = TracePlayer([ReplayedPolicy(compiled, observe=observe)], timelines=False)
    for number, trace in enumerate(traces):
        where = _locator(trace, (number, 0))
        yield from player.play(trace, where, lambda item, place: on_skipped(item))


def _locator(trace: TraceFile, order: tuple[int, int]) -> Locate:
    return lambda place: (trace, (*order, place))
