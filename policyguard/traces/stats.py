"""What recorded runs consist of, in numbers: a file, a format, and all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from policyguard.model.event import Admitted, Completed, Refused
from policyguard.report.replay.figures import ErrorFigures, SkippedFigures
from policyguard.traces.item import Skipped
from policyguard.traces.reader import TraceFile

MAX_TOOLS = 10
"""How many tools are named: those that were called most."""


class ToolFigures(msgspec.Struct):
    """A tool, and how often it was called."""

    tool: str
    calls: int


class LengthFigures(msgspec.Struct):
    """Calls a session: the least number that this share of the sessions does not exceed."""

    median: int | None = None
    p90: int | None = None
    p99: int | None = None


class TraceStats(msgspec.Struct, kw_only=True):
    """Some sessions.

    `results` counts calls that were completed, also those of whose result nothing is recorded.
    `errors` counts failed results by what tells of their failure, and results of which nothing
    tells; `timed` counts calls with a time: to the others rules on time do not apply.
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
    """One file, or one member of an archive; `format` is None where none was recognised."""

    file: str
    format: str | None


class FormatStats(TraceStats, kw_only=True):
    """All files of one format."""

    format: str
    files: int = 0


class Stats(msgspec.Struct):
    """The whole report."""

    total: TraceStats = msgspec.field(default_factory=TraceStats)
    formats: list[FormatStats] = []
    files: list[FileStats] = []
    skips: list[SkippedFigures] = []


class _StatsCounter:
    """Sessions while they are counted; their figures are complete once it is `concluded`."""

    def __init__(self, figures: TraceStats) -> None:
        self._figures = figures
        self._lengths: list[int] = []
        self._tools: Counter[str] = Counter()

    def add_file(self, trace: TraceFile, skips: list[SkippedFigures]) -> None:
        """All of one file."""
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
                    self._tools[item.tool] += 1
                case Completed():
                    figures.results += 1
                    _count_error(figures.errors, item)
        figures.sessions += len(lengths)
        self._lengths += lengths.values()

    def merge(self, other: _StatsCounter) -> None:
        """What another has counted."""
        mine, theirs = self._figures, other._figures
        mine.sessions += theirs.sessions
        mine.calls += theirs.calls
        mine.results += theirs.results
        mine.timed += theirs.timed
        mine.skipped += theirs.skipped
        mine.errors.explicit += theirs.errors.explicit
        mine.errors.inferred += theirs.errors.inferred
        mine.errors.unknown += theirs.errors.unknown
        self._lengths += other._lengths
        self._tools.update(other._tools)

    def finish(self) -> None:
        """Whatever can be told of all sessions together only."""
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
    """The least of sorted numbers that so many percent do not exceed: the nearest rank."""
    return lengths[max(-(-len(lengths) * percent // 100), 1) - 1] if lengths else None


def collect_stats(traces: Iterable[TraceFile]) -> Stats:
    """Count all files. What is held is a number a session, the tools' names, and what was skipped.

    A session is one of its file: the same id in two files is two.
    """
    report = Stats()
    total = _StatsCounter(report.total)
    formats: dict[str, tuple[FormatStats, _StatsCounter]] = {}
    for trace in traces:
        of_file = FileStats(file=str(trace.path), format=trace.format)
        count = _StatsCounter(of_file)
        count.add_file(trace, report.skips)
        report.files.append(of_file)
        total.merge(count)
        if trace.format is not None:
            if trace.format not in formats:
                fresh = FormatStats(format=trace.format)
                formats[trace.format] = fresh, _StatsCounter(fresh)
            of_format, sum_ = formats[trace.format]
            of_format.files += 1
            sum_.merge(count)
        count.finish()
    total.finish()
    for _, (of_format, sum_) in sorted(formats.items()):
        sum_.finish()
        report.formats.append(of_format)
    return report
