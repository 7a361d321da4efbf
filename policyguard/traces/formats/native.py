"""policyguard's own format: one event a line, as the journal writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import msgspec

from policyguard.journal.format import LineError, decode
from policyguard.model.event import Event
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.importer import SeenIds
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import as_string

FORMAT = "policyguard"

_EVENT_KINDS = frozenset(kind.__struct_config__.tag for kind in get_args(Event))


class EventHead(msgspec.Struct):
    """What tells whose line it is."""

    session: str
    event: str = ""
    parent: str = ""


_head_decoder = msgspec.json.Decoder(EventHead)


def parse_head(line: bytes) -> EventHead | None:
    """What a line says of itself; None where it can be no event."""
    try:
        return _head_decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def is_event(head: EventHead) -> bool:
    """Whether it names a kind of event that there is."""
    return head.event in _EVENT_KINDS


def detect(sample: Sample) -> bool:
    """A line that names a kind of event and a session."""
    return any(
        isinstance(record, dict)
        and "session" in record
        and as_string(record.get("event")) in _EVENT_KINDS
        for record in sample.records
    )


def read(source: Source, seen_ids: SeenIds) -> Iterator[Item]:
    """Each line as it stands; a line that is no event is Skipped."""
    only = source.line_filter
    for number, line in source.raw_lines():
        if only is not None and not only(line):
            continue
        try:
            yield decode(line)
        except LineError as error:
            yield Skipped(source.file, number, str(error))
