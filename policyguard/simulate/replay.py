"""Replay: recorded runs under a policy, and under a baseline for comparison."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.report.replay.figures import Figures, SkippedFigures
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.labels import Labels
from policyguard.simulate.sample.sampling import SessionSample
from policyguard.simulate.sessions.error_kinds import ReadOrder
from policyguard.simulate.sessions.replayed_policy import ReplayedPolicy
from policyguard.simulate.sessions.run import Run
from policyguard.simulate.sessions.trace_player import Locate, TracePlayer
from policyguard.simulate.tally import ReportSize, Tally
from policyguard.simulate.unfired import ToolUsage, find_own_entries
from policyguard.traces import Reader, Skipped, TraceFile
from policyguard.traces.formats.native import FORMAT
from policyguard.traces.interleaving import InterleavedFiles
from policyguard.traces.session_trees import SessionTree

REPLAY_KEY = b"policyguard simulate"


def load(policies: str | Path | Sequence[str | Path], key: bytes = REPLAY_KEY) -> CompiledPolicy:
    """Compile a policy for a replay, as `compile_policy` does.

    Its fingerprints use a fixed key, so that reports are reproducible byte for byte; no report
    contains a fingerprint. Do not use the policy for a live guard.
    """
    return use_replay_key(compile_policy(policies), key)


def use_replay_key(compiled: CompiledPolicy, key: bytes = REPLAY_KEY) -> CompiledPolicy:
    """Give a policy's fingerprints the fixed key of replays."""
    compiled.fingerprinter.rekey(key)
    return compiled


def _warn_skipped(item: Skipped) -> None:
    location = f"{item.file}:{item.line}" if item.line else item.file
    warnings.warn(f"{location}: {item.reason}", stacklevel=3)


class Replay:
    """A replay of trace files under a policy, and its figures.

    By default the results of refused calls are dropped; with `observe`, every call counts as
    recorded, refused or not. With a `baseline`, each event goes through both policies.
    `sample` chooses the sessions that are replayed; the others are only read.
    `on_progress` is called now and then between two events, and may raise to stop; `finish` then
    returns the figures so far.
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
        sample: SessionSample | None = None,
    ) -> None:
        report_size = report_size or ReportSize()
        self._compiled = [policy for policy in (compiled, baseline) if policy is not None]
        policies = [ReplayedPolicy(policy, observe=observe) for policy in self._compiled]
        own_entries = find_own_entries(compiled)
        self._tools = ToolUsage(own_entries)
        draw = None if sample is None else sample.draw
        names = [policy.policy for policy in policies]
        self.tally = Tally(names, report_size, own_entries, draw)
        self._labels = labels
        self._shard, self._sample = shard, sample
        self._by_source = labels is not None and labels.has_file_labels
        self._player = TracePlayer(
            policies,
            timelines=report_size.timelines > 0,
            on_progress=on_progress,
            on_tool=self._tools.add if own_entries else None,
            is_sampled=sample,
            by_source=self._by_source,
        )
        self._file_count = 0
        self._pending: list[Run] = []  # each may turn out to be the only session of its file

    @property
    def events(self) -> int:
        """The number of events read."""
        return self._player.events

    def add(
        self, trace: TraceFile, order: tuple[int, int] | None = None, *, whole: bool = False
    ) -> None:
        """Replay one file. Its end closes the sessions that are still open.

        `order` is its position among all files, by default after those before. With `whole`, no
        line is left to other workers.
        """
        self._file_count += 1
        order = order or (self._file_count, 0)
        if self._shard is not None:
            self._shard.begin(whole=whole, by_source=self._by_source)
        if self._sample is not None:
            self._sample.begin(str(trace.path))
        shard = self._shard if trace.format == FORMAT else None
        is_first_worker = shard is None or shard.is_whole or shard.index == 0
        if is_first_worker:
            self._count_file(trace)

        def on_skipped(item: Skipped, line: int) -> None:
            if item.line is not None or is_first_worker:
                self._skip(item, (*order, line))

        current_line = None if shard is None or shard.is_whole else lambda: shard.line
        locate = _locator(trace, order)
        self._add_runs(self._player.play(trace, locate, on_skipped, current_line))

    def add_tree(self, reader: Reader, files: Sequence[Path], tree: SessionTree) -> None:
        """Replay the files of a session tree as one, in order of time."""
        if self._shard is not None:
            self._shard.begin(whole=True)
        if self._sample is not None:
            self._sample.begin(str(files[tree.indices[0]]))
        items = InterleavedFiles(reader, files, tree, self._count_file)

        def locate(line: int) -> tuple[TraceFile, ReadOrder]:
            return items.trace, (tree.indices[items.file_index], 0, items.position)

        def on_skipped(item: Skipped, line: int) -> None:
            self._skip(item, locate(line)[1])

        self._add_runs(self._player.play(items, locate, on_skipped))

    def finish(self, *, partial: bool = False) -> Figures:
        """Stop, and return the figures. `partial`: not everything was read."""
        self.stop()
        return self.tally.build_figures(self._compiled, self._labels, partial=partial)

    def stop(self) -> Tally:
        """Close and count the open sessions, and return the tally."""
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

    def _add_runs(self, runs: Iterable[Run]) -> None:
        for run in runs:
            if self._labels is not None and run.is_first and self._labels.may_name(run.label_file):
                self._pending.append(run)
            else:
                self._add_run(run, only_session=False)
        pending, self._pending = self._pending, []
        for run in pending:
            several = self._player.session_counts[run.source or run.order[:-1]] > 1 or (
                self._shard is not None and self._shard.has_several_sessions(run.source)
            )
            self._add_run(run, only_session=not several)

    def _add_run(self, run: Run, *, only_session: bool) -> None:
        if self._labels is not None:
            indices, success = self._labels.find(run.id, run.label_file, only_session=only_session)
            self.tally.matched_labels.update(indices)
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
    """Yield the sessions of some files under one policy, each as soon as it ends.

    `on_skipped` is called for everything that could not be read; by default it warns.
    """
    player = TracePlayer([ReplayedPolicy(compiled, observe=observe)], timelines=False)
    for index, trace in enumerate(traces):
        locate = _locator(trace, (index, 0))
        yield from player.play(trace, locate, lambda item, line: on_skipped(item))


def _locator(trace: TraceFile, order: tuple[int, int]) -> Locate:
    return lambda line: (trace, (*order, line))
