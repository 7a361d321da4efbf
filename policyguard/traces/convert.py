"""Traces of any format → one stream of events in which each session has an id of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from policyguard.model.event import Event, Started
from policyguard.traces.item import Skipped
from policyguard.traces.reader import TraceFile


class RenamedSession(msgspec.Struct, frozen=True):
    """A session whose id another file has had: it goes on under another one."""

    file: str
    old_id: str
    new_id: str


def convert_traces(traces: Iterable[TraceFile]) -> Iterator[Event | Skipped | RenamedSession]:
    """All events as they are, but for the ids of sessions that two files share.

    A parent is renamed in its children too. Files of one family are to come as one of `traces`.

    One stream is one file when it is read again, and in a file an id is one session.
    """
    taken: dict[str, int] = {}
    for trace in traces:
        names: dict[str, str] = {}
        for item in trace:
            if isinstance(item, Skipped):
                yield item
                continue
            now = names.get(item.session)
            if now is None:
                now = names[item.session] = _unused_id(item.session, taken)
                if now != item.session:
                    yield RenamedSession(str(trace.path), item.session, now)
            if now != item.session:
                item = msgspec.structs.replace(item, session=now)
            if isinstance(item, Started) and names.get(item.parent, item.parent) != item.parent:
                item = msgspec.structs.replace(item, parent=names[item.parent])
            yield item


def _unused_id(session: str, used_ids: dict[str, int]) -> str:
    """The id, or the first of `id#1`, `id#2` … that is free; it is taken then.

    `taken` holds the last number that was tried for an id.
    """
    now = session
    while now in used_ids:
        used_ids[session] += 1
        now = f"{session}#{used_ids[session]}"
    used_ids[now] = 0
    return now
