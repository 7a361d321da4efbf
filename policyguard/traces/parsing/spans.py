"""Spans that an agent left, whatever wrote them → the events of their session, in time's order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from policyguard.model.event import Started
from policyguard.traces.item import Item, Skipped
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

_EARLIER_RESULTS, _REPLIES, _CALLS, _INSTANT_RESULTS = range(4)
"""What comes first of things that happened at one moment."""


class Span(msgspec.Struct, frozen=True):
    """One span: a tool's, with its `call` and `result`, a model's, with what it used, or another.

    `start` and `end` are nanoseconds since 1970; a span that is cut off has no end.
    """

    id: str
    parent: str
    start: int | None = None
    end: int | None = None
    agent: str = ""
    call: ImportedCall | None = None
    result: ImportedResult | None = None
    is_mcp: bool = False
    tokens: int = 0
    cost: float = 0.0


def build_session(file: str, session: str, spans: list[Span]) -> Iterator[Item]:
    """The session of one trace: one turn, for a trace begins where the agent is asked."""
    starts = [span.start for span in spans if span.start is not None]
    ends = [span.end for span in spans if span.end is not None]
    agents = sorted((_sort_time(span.start), span.agent) for span in spans if span.agent)
    began = min(starts, default=None)
    started = Started(session=session, at=began, agent=agents[0][1] if agents else "")
    told = SessionBuilder(file, started)
    yield from told.start()
    told.add_prompt(began)
    batches: dict[str, str] = {}
    calls = _outermost_calls(spans)
    together = _group_parallel(spans, calls)
    # Many instrumentations leave all contents out; some leave out arguments that are empty.
    arguments = any(span.call is not None and span.call.args is not None for span in spans)
    for what, span in _order_steps(spans, calls):
        if what == _REPLIES:
            yield from told.add_reply(span.tokens, span.cost, span.end)
        elif what == _CALLS and span.call is not None:
            group = together.get(span.id, "")
            if group and group not in batches:
                batches[group] = told.new_batch()
            call = span.call
            if arguments and call.args is None:
                call = msgspec.structs.replace(call, args={})
            yield from told.add_call(call, batches.get(group, ""))
        elif span.result is not None:
            yield from told.add_result(span.result)
    yield from told.close(at=max(ends, default=None))
    if calls and not arguments:
        texts = any(span.result is not None and span.result.text for span in spans)
        none = "no arguments" if texts else "no arguments and no results"
        reason = f"{none} of {len(calls)} calls are recorded: which are the same is not known"
        yield Skipped(file, None, f"session `{session}`: {reason}")


def _order_steps(spans: list[Span], calls: set[int]) -> Iterator[tuple[int, Span]]:
    steps: list[tuple[float, int, int, Span]] = []
    for index, span in enumerate(spans):
        start = _sort_time(span.start)
        end = max(start, _sort_time(span.end)) if span.end is not None else start
        if index in calls:
            at_once = _INSTANT_RESULTS if end == start else _EARLIER_RESULTS
            steps += [(start, _CALLS, index, span), (end, at_once, index, span)]
    for index in _innermost_usage(spans):
        span = spans[index]
        steps.append(
            (_sort_time(span.end if span.end is not None else span.start), _REPLIES, index, span)
        )
    steps.sort(key=lambda step: step[:3])
    return ((what, span) for _, what, _, span in steps)


def _sort_time(at: int | None) -> float:
    """What has no time comes last, in the order of the file."""
    return math.inf if at is None else at


def _outermost_calls(spans: list[Span]) -> set[int]:
    """The places of the calls, of those that two layers have written down the outer one only."""
    parents = {span.id: span for span in spans}
    calls = set()
    for index, span in enumerate(spans):
        if span.call is not None and not _has_outer_span(span, span.call, parents):
            calls.add(index)
    return calls


def _has_outer_span(span: Span, call: ImportedCall, parents: dict[str, Span]) -> bool:
    met = {span.id}
    above = parents.get(span.parent)
    while above is not None and above.id not in met:
        met.add(above.id)
        if above.call is not None and (
            (span.is_mcp and above.call.tool == call.tool)
            or (call.id != span.id and above.call.id == call.id)
            or (above.id == span.parent and _is_same_call(span, call, above, above.call))
        ):
            return True
        above = parents.get(above.parent)
    return False


def _is_same_call(span: Span, call: ImportedCall, outer: Span, outer_call: ImportedCall) -> bool:
    """Whether two spans, one directly in the other, are one call, of which not both have the id.

    A tool that calls itself does so with other arguments.
    """
    same = call.tool == outer_call.tool and call.args is not None and call.args == outer_call.args
    return same and (call.id == span.id or outer_call.id == outer.id)


def _innermost_usage(spans: list[Span]) -> Iterable[int]:
    """The places of the innermost spans that tell what was used: those around them add it up."""
    parents = {span.id: span for span in spans}
    around: set[str] = set()
    using = [index for index, span in enumerate(spans) if span.tokens or span.cost]
    for index in using:
        above = parents.get(spans[index].parent)
        while above is not None and above.id not in around:
            around.add(above.id)
            above = parents.get(above.parent)
    return [index for index in using if spans[index].id not in around]


def _group_parallel(spans: list[Span], calls: set[int]) -> dict[str, str]:
    """For each call that ran at the same time as one beside it: the id of the first of them."""
    beside: dict[str, list[Span]] = {}
    for index, span in enumerate(spans):
        if index in calls and span.start is not None and span.end is not None:
            beside.setdefault(span.parent, []).append(span)
    groups: dict[str, str] = {}
    for siblings in beside.values():
        siblings.sort(key=lambda span: _sort_time(span.start))
        first, busy = "", -math.inf
        for span in siblings:
            if _sort_time(span.start) < busy:
                groups[first] = groups[span.id] = first
            else:
                first = span.id
            busy = max(busy, _sort_time(span.end)) if span.id in groups else _sort_time(span.end)
    return groups
