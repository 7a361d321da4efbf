"""`Stats` for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policyguard.report.escape import for_terminal
from policyguard.traces.stats import Stats, TraceStats

_MAX_SKIPS = 20
"""How many of the passed-over things are listed; JSON has them all."""

_MAX_TEXT_LENGTH = 160
"""Characters of a text out of a trace."""

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
    "median, p90, p99: calls a session. explicit, inferred: failed results, by whether the record",
    "says so or its text does; unknown: results of which nothing tells. timed: calls with a time.",
)


def render_text(stats: Stats) -> str:
    """Tables by format and by file, the tools, and what was skipped."""
    return "\n".join(_lines(stats))


def _lines(stats: Stats) -> Iterator[str]:
    formats = [(f"{one.format} ({one.files})", one) for one in stats.formats]
    yield from _table("format (files)", [*formats, ("all", stats.total)])
    yield ""
    yield from _LEGEND
    if stats.total.tools:
        yield ""
        yield "tools called most"
        for one in stats.formats:
            tools = ", ".join(f"{for_terminal(tool.tool, 40)} {tool.calls}" for tool in one.tools)
            if tools:
                yield f"  {one.format}: {tools}"
    read = [(one.file, one) for one in stats.files if one.format is not None]
    if read:
        yield ""
        yield from _table("file", read)
    if stats.skips:
        yield ""
        yield f"skipped ({len(stats.skips)})"
        for skip in stats.skips[:_MAX_SKIPS]:
            place = skip.file if skip.line is None else f"{skip.file}:{skip.line}"
            yield for_terminal(f"  {place}: {skip.reason}", _MAX_TEXT_LENGTH)
        if len(stats.skips) > _MAX_SKIPS:
            yield f"  and {len(stats.skips) - _MAX_SKIPS} more: --format json lists all"


def _table(title: str, rows: Sequence[tuple[str, TraceStats]]) -> Iterator[str]:
    """The names stand last: some are longer than any line."""
    lines = [(*_COLUMNS, title), *((*_cells(one), for_terminal(name)) for name, one in rows)]
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
