"""Statistics of recorded runs: per file, per format, and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from policyguard.model.event import Admitted, Completed, Refused
from policyguard.report.replay.figures import ErrorFigures, SkippedFigures
from policyguard.traces.item import Skipped
from policyguard.traces.reader import TraceFile

MAX_TOOLS = 10
"""The number of most called tools in a report."""


class ToolFigures(msgspec.Struct):
    """A tool and its number of calls."""

    tool: str
    calls: int


class LengthFigures(msgspec.Struct):
    """Percentiles of the number of calls per session."""

    median: int | None = None
    p90: int | None = None
    p99: int | None = None


class TraceStats(msgspec.Struct, kw_only=True):
    """The statistics of a set of sessions.

    `results` counts completed calls, even without a recorded result. `errors` counts failed
    results by provenance, and results with unknown status. `timed` counts calls with a time.
    """

    sessions: int = 0
    calls: int = 0
    results: int = 0
    timed: int = 0
    skipped: int = 0
    errors: ErrorFigures = msgspec.field(default_factory=ErrorFigures)
    calls_per_session: LengthFigures = msgspec.field(default_factory=LengthFigures)
    tools: list[ToolFigures] = []


class FileStats(TraceStats, kw_only=True):
    """The statistics of a file or archive member; `format` is None if unrecognized."""

    file: str
    format: str | None


class FormatStats(TraceStats, kw_only=True):
    """The statistics of all files of one format."""

    format: str
    files: int = 0


class Stats(msgspec.Struct):
    """The whole report."""

    total: TraceStats = msgspec.field(default_factory=TraceStats)
    formats: list[FormatStats] = []
    files: list[FileStats] = []
    skips: list[SkippedFigures] = []


class _StatsCounter:
    """A counter that fills `figures`, which are complete after `finish`."""

    def __init__(self, figures: TraceStats) -> None:
        self._figures = figures
        self._lengths: list[int] = []
        self._tools: Counter[str] = Counter()

    def add_file(self, trace: TraceFile, skips: list[SkippedFigures]) -> None:
        figures, lengths = self._figures, Counter[str]()
        for item in trace:
            if isinstance(item, Skipped):
                figures.skipped += 1
                skips.append(SkippedFigures(item.file, item.line, item.reason))
                continue
            lengths[item.session] += isinstance(item, Admitted | Refused)
            match item:
                case Admitted() | Refused():
                    figures.calls += 1
                    figures.timed += item.at is not None
                    self._tools[item.shown_tool] += 1
                case Completed():
                    figures.results += 1
                    _count_error(figures.errors, item)
        figures.sessions += len(lengths)
        self._lengths += lengths.values()

    def merge(self, other: _StatsCounter) -> None:
        add_numbers(self._figures, other._figures)
        self._lengths += other._lengths
        self._tools.update(other._tools)

    def finish(self) -> None:
        """Compute the figures that need all sessions."""
        self._lengths.sort()
        shares = (_percentile(self._lengths, percent) for percent in (50, 90, 99))
        self._figures.calls_per_session = LengthFigures(*shares)
        ranked = sorted(self._tools.items(), key=lambda tool: (-tool[1], tool[0]))
        self._figures.tools = [ToolFigures(tool, calls) for tool, calls in ranked[:MAX_TOOLS]]


def _count_error(errors: ErrorFigures, result: Completed) -> None:
    if result.ok is None and result.error is None:
        errors.unknown += 1
    elif result.ok is not True and result.provenance == "inferred":
        errors.inferred += 1
    elif result.ok is not True:
        errors.explicit += 1


def _percentile(lengths: list[int], percent: int) -> int | None:
    """Return the percentile of sorted numbers by the nearest-rank method."""
    return lengths[max(-(-len(lengths) * percent // 100), 1) - 1] if lengths else None


def collect_stats(traces: Iterable[TraceFile]) -> Stats:
    """Count all files; the same session id in two files is two sessions.

    Memory holds a number per session, the tools' names, and the skipped parts.
    """
    report = Stats()
    total = _StatsCounter(report.total)
    formats: dict[str, tuple[FormatStats, _StatsCounter]] = {}
    for trace in traces:
        file_stats = FileStats(file=str(trace.path), format=trace.format)
        counter = _StatsCounter(file_stats)
        counter.add_file(trace, report.skips)
        report.files.append(file_stats)
        total.merge(counter)
        if trace.format is not None:
            if trace.format not in formats:
                format_stats = FormatStats(format=trace.format)
                formats[trace.format] = format_stats, _StatsCounter(format_stats)
            format_stats, format_counter = formats[trace.format]
            format_stats.files += 1
            format_counter.merge(counter)
        counter.finish()
    total.finish()
    for _, (format_stats, format_counter) in sorted(formats.items()):
        format_counter.finish()
        report.formats.append(format_stats)
    return report


def add_numbers(target: msgspec.Struct, other: msgspec.Struct) -> None:
    """Add all numbers that two structs have in common, including nested ones."""
    for name in set(target.__struct_fields__).intersection(other.__struct_fields__):
        value, more = getattr(target, name), getattr(other, name)
        if isinstance(value, msgspec.Struct):
            add_numbers(value, more)
        elif isinstance(value, dict):
            for key, count in more.items():
                value[key] = value.get(key, 0) + count
        elif isinstance(value, int):
            setattr(target, name, value + more)
