"""Conversion of an agent's spans, whatever recorded them, into the events of a session."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from policyguard.model.event import SessionStarted
from policyguard.model.tool_name import parse_tool_name
from policyguard.traces.item import Item, Skipped
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

_EARLIER_RESULTS, _REPLIES, _CALLS, _INSTANT_RESULTS = range(4)
"""The order of steps that happened at one moment."""

NAME_PREFIXES = ("execute_tool ", "running tool: ")
"""Prefixes that instrumentations put before a tool's name."""


class TraceSpan(msgspec.Struct, frozen=True):
    """A span: of a tool, with its `call` and `result`, of a model, with its usage, or another.

    `start` and `end` are ns since 1970; a span that was cut off has no end. `is_work`: an agent
    or a model is at work.
    """

    id: str
    parent: str
    start: int | None = None
    end: int | None = None
    agent: str = ""
    call: ImportedCall | None = None
    result: ImportedResult | None = None
    is_mcp: bool = False
    is_work: bool = False
    tokens: int = 0
    cost: float = 0.0


def tool_in_name(name: str) -> str:
    """Return the tool in a span's name, without the `NAME_PREFIXES`."""
    for prefix in NAME_PREFIXES:
        name = name.removeprefix(prefix)
    return name


def seconds_between(start: int | None, end: int | None) -> float | None:
    """Return the duration of a span with a start and an end."""
    return None if start is None or end is None else max(end - start, 0) / 1_000_000_000


def build_session(file: str, session: str, spans: list[TraceSpan]) -> Iterator[Item]:
    """Yield the session of one trace; it has one turn, as a trace begins with a user message."""
    # Others prepare the agent, or come after it: connections, evaluations.
    work = [span for span in spans if span.is_work or span.call is not None or span.tokens]
    starts = [span.start for span in work if span.start is not None]
    ends = [span.end for span in work if span.end is not None]
    agents = sorted((_sort_time(span.start), span.agent) for span in spans if span.agent)
    began = min(starts, default=None)
    started = SessionStarted(session=session, at=began, agent=agents[0][1] if agents else "")
    builder = SessionBuilder(file, started)
    builder.add_prompt(began)
    batches: dict[str, str] = {}
    calls = _outermost_calls(spans)
    groups = _group_parallel(spans, calls)
    # Many instrumentations record no contents; some leave out empty arguments only.
    has_arguments = any(span.call is not None and span.call.args is not None for span in spans)
    for kind, span in _order_steps(spans, calls):
        if kind == _REPLIES:
            yield from builder.add_reply(span.tokens, span.cost, span.end)
        elif kind == _CALLS and span.call is not None:
            group = groups.get(span.id, "")
            if group and group not in batches:
                batches[group] = builder.new_batch()
            call = span.call
            if has_arguments and call.args is None:
                call = msgspec.structs.replace(call, args={})
            yield from builder.add_call(call, batches.get(group, ""))
        elif span.result is not None:
            yield from builder.add_result(span.result)
    yield from builder.close(at=max(ends, default=None))
    if calls and not has_arguments:
        has_texts = any(span.result is not None and span.result.text for span in spans)
        missing = "no arguments" if has_texts else "no arguments and no results"
        reason = f"{missing} recorded for {len(calls)} calls: repetition cannot be detected"
        yield Skipped(file, None, f"session `{session}`: {reason}")


def _order_steps(spans: list[TraceSpan], calls: set[int]) -> Iterator[tuple[int, TraceSpan]]:
    steps: list[tuple[float, int, int, TraceSpan]] = []
    for index, span in enumerate(spans):
        start = _sort_time(span.start)
        end = max(start, _sort_time(span.end)) if span.end is not None else start
        if index in calls:
            results = _INSTANT_RESULTS if end == start else _EARLIER_RESULTS
            steps += [(start, _CALLS, index, span), (end, results, index, span)]
    for index in _innermost_usage(spans):
        span = spans[index]
        at = _sort_time(span.end if span.end is not None else span.start)
        steps.append((at, _REPLIES, index, span))
    steps.sort(key=lambda step: step[:3])
    return ((kind, span) for _, kind, _, span in steps)


def _sort_time(at: int | None) -> float:
    """Sort steps without a time last, in the order of the file."""
    return math.inf if at is None else at


def _outermost_calls(spans: list[TraceSpan]) -> set[int]:
    """Return the indices of the calls; of a call that two layers recorded, the outer one."""
    spans_by_id = {span.id: span for span in spans}
    return {
        index
        for index, span in enumerate(spans)
        if span.call is not None and not _has_outer_span(span, span.call, spans_by_id)
    }


def _has_outer_span(span: TraceSpan, call: ImportedCall, spans_by_id: dict[str, TraceSpan]) -> bool:
    seen_ids = {span.id}
    outer = spans_by_id.get(span.parent)
    while outer is not None and outer.id not in seen_ids:
        seen_ids.add(outer.id)
        if outer.call is not None and (
            (span.is_mcp and _own_name(outer.call) == _own_name(call))
            or (call.id != span.id and outer.call.id == call.id)
            or (outer.id == span.parent and _is_same_call(span, call, outer, outer.call))
        ):
            return True
        outer = spans_by_id.get(outer.parent)
    return False


def _own_name(call: ImportedCall) -> str:
    return parse_tool_name(call.tool, call.server).tool


def _is_same_call(
    span: TraceSpan, call: ImportedCall, outer: TraceSpan, outer_call: ImportedCall
) -> bool:
    """Return whether a span and its parent are one call, recorded twice, at least once without id.

    A tool that calls itself passes other arguments.
    """
    same = _own_name(call) == _own_name(outer_call)
    same = same and call.args is not None and call.args == outer_call.args
    return same and (call.id == span.id or outer_call.id == outer.id)


def _innermost_usage(spans: list[TraceSpan]) -> Iterable[int]:
    """Return the indices of the innermost spans with usage; outer spans repeat their sum."""
    spans_by_id = {span.id: span for span in spans}
    outer_ids: set[str] = set()
    with_usage = [index for index, span in enumerate(spans) if span.tokens or span.cost]
    for index in with_usage:
        outer = spans_by_id.get(spans[index].parent)
        while outer is not None and outer.id not in outer_ids:
            outer_ids.add(outer.id)
            outer = spans_by_id.get(outer.parent)
    return [index for index in with_usage if spans[index].id not in outer_ids]


def _group_parallel(spans: list[TraceSpan], calls: set[int]) -> dict[str, str]:
    """Map each call that overlapped with a sibling to the id of the first call of its group."""
    siblings_by_parent: dict[str, list[TraceSpan]] = {}
    for index, span in enumerate(spans):
        if index in calls and span.start is not None and span.end is not None:
            siblings_by_parent.setdefault(span.parent, []).append(span)
    groups: dict[str, str] = {}
    for siblings in siblings_by_parent.values():
        siblings.sort(key=lambda span: _sort_time(span.start))
        first, busy_until = "", -math.inf
        for span in siblings:
            if _sort_time(span.start) < busy_until:
                groups[first] = groups[span.id] = first
            else:
                first = span.id
            end = _sort_time(span.end)
            busy_until = max(busy_until, end) if span.id in groups else end
    return groups
