"""policyguard's own format: one event per line, as the journal writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import msgspec
from msgspec.structs import replace

from policyguard.journal.format import LineError, decode
from policyguard.model.event import Admitted, Event, Refused
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import as_string

FORMAT = "policyguard"

_EVENT_KINDS = frozenset(kind.__struct_config__.tag for kind in get_args(Event))


class EventHead(msgspec.Struct):
    """The fields that identify a line's session."""

    session: str
    event: str = ""
    parent: str = ""
    source: str = ""


_head_decoder = msgspec.json.Decoder(EventHead)


def parse_head(line: bytes) -> EventHead | None:
    """Decode a line's head; return None if the line cannot be an event."""
    try:
        head = _head_decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return head if head.event in _EVENT_KINDS else None


def is_event(line: bytes) -> bool:
    """Return whether a line is an event, as `read` decides it."""
    try:
        decode(line)
    except LineError:
        return False
    return True


def detect(sample: Sample) -> bool:
    """Return whether a line names a kind of event and a session."""
    return any(
        isinstance(record, dict)
        and "session" in record
        and as_string(record.get("event")) in _EVENT_KINDS
        for record in sample.records
    )


def read(source: Source) -> Iterator[Item]:
    """Yield each line's event, or `Skipped` for a line that is not an event."""
    line_filter = source.line_filter
    for number, line in source.raw_lines():
        if line_filter is not None and not line_filter(line):
            continue
        try:
            event = decode(line)
        except LineError as error:
            yield Skipped(source.file, number, str(error))
        else:
            yield _split_tool_name(event) if b'"mcp__' in line else event


def _split_tool_name(event: Event) -> Event:
    """Split a call's full name, as a session does."""
    if not isinstance(event, Admitted | Refused):
        return event
    tool, server, host_tool = event.tool_name
    return replace(event, tool=tool, server=server, host_tool=host_tool)
