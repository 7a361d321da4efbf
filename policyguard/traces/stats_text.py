"""`Stats` as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policyguard.report.escape import for_terminal
from policyguard.traces.stats import Stats, TraceStats

_MAX_SKIPS = 20
"""Skipped parts to list; JSON has all of them."""

_MAX_TEXT_LENGTH = 160
"""Characters of a text from a trace."""

_COLUMNS = (
    "sessions",
    "calls",
    "median",
    "p90",
    "p99",
    "results",
    "explicit",
    "inferred",
    "unknown",
    "timed",
    "skipped",
)
_LEGEND = (
    "median, p90, p99: calls per session. explicit, inferred: failed results, by a flag or by",
    "their text; unknown: results with unknown status. timed: calls with a time.",
)


def render_text(stats: Stats) -> str:
    """Return tables by format and by file, the tools, and the skipped parts."""
    return "\n".join(_lines(stats))


def _lines(stats: Stats) -> Iterator[str]:
    formats = [(f"{row.format} ({row.files})", row) for row in stats.formats]
    yield from _table("format (files)", [*formats, ("all", stats.total)])
    yield ""
    yield from _LEGEND
    if stats.total.tools:
        yield ""
        yield "most called tools"
        for row in stats.formats:
            tools = ", ".join(f"{for_terminal(tool.tool, 40)} {tool.calls}" for tool in row.tools)
            if tools:
                yield f"  {row.format}: {tools}"
    read = [(row.file, row) for row in stats.files if row.format is not None]
    if read:
        yield ""
        yield from _table("file", read)
    if stats.skips:
        yield ""
        yield f"skipped ({len(stats.skips)})"
        for skip in stats.skips[:_MAX_SKIPS]:
            location = skip.file if skip.line is None else f"{skip.file}:{skip.line}"
            yield for_terminal(f"  {location}: {skip.reason}", _MAX_TEXT_LENGTH)
        if len(stats.skips) > _MAX_SKIPS:
            yield f"  and {len(stats.skips) - _MAX_SKIPS} more: --format json lists all"


def _table(title: str, rows: Sequence[tuple[str, TraceStats]]) -> Iterator[str]:
    """Yield a table with the names last, as some are very long."""
    lines = [(*_COLUMNS, title), *((*_cells(row), for_terminal(name)) for name, row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    for *cells, name in lines:
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        yield "  ".join((*numbers, name))


def _cells(stats: TraceStats) -> tuple[str, ...]:
    length = stats.calls_per_session
    numbers = (
        stats.sessions,
        stats.calls,
        length.median,
        length.p90,
        length.p99,
        stats.results,
        stats.errors.explicit,
        stats.errors.inferred,
        stats.errors.unknown,
        stats.timed,
        stats.skipped,
    )
    return tuple("-" if number is None else str(number) for number in numbers)
