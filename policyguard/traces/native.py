"""policyguard's own format: one event a line, as the journal writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import msgspec

from policyguard.journal.format import LineError, decode
from policyguard.model.event import Event
from policyguard.traces.importer import Met
from policyguard.traces.item import Item, Skipped
from policyguard.traces.shape import as_string
from policyguard.traces.source import Sample, Source

FORMAT = "policyguard"

_KINDS = frozenset(kind.__struct_config__.tag for kind in get_args(Event))


class Head(msgspec.Struct):
    """What tells whose line it is."""

    session: str
    event: str = ""
    parent: str = ""


_heads = msgspec.json.Decoder(Head)


def head(line: bytes) -> Head | None:
    """What a line says of itself; None where it can be no event."""
    try:
        return _heads.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def is_event(head: Head) -> bool:
    """Whether it names a kind of event that there is."""
    return head.event in _KINDS


def detect(sample: Sample) -> bool:
    """A line that names a kind of event and a session."""
    return any(
        isinstance(record, dict)
        and "session" in record
        and as_string(record.get("event")) in _KINDS
        for record in sample.records
    )


def read(source: Source, met: Met) -> Iterator[Item]:
    """Each line as it stands; a line that is no event is Skipped."""
    only = source.only
    for number, line in source.raw_lines():
        if only is not None and not only(line):
            continue
        try:
            yield decode(line)
        except LineError as error:
            yield Skipped(source.file, number, str(error))
