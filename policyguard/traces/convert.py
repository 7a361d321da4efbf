"""Conversion of traces into one stream of events with unique session ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from policyguard.model.event import Event, SessionStarted
from policyguard.traces.containers.row_filter import ALL_ROWS, Rows
from policyguard.traces.interleaving import InterleavedFiles
from policyguard.traces.item import Item, Skipped
from policyguard.traces.reader import Reader, TraceFile
from policyguard.traces.session_trees import find_session_trees


class RenamedSession(msgspec.Struct, frozen=True):
    """A session that got a new id because an earlier file has a session with the same id."""

    file: str
    old_id: str
    new_id: str


def convert_traces(traces: Iterable[TraceFile]) -> Iterator[Event | Skipped | RenamedSession]:
    """Yield all events, with new ids for sessions whose id an earlier file has used.

    The `parent` of their sub-agents changes too, so files of one session tree must be one trace.
    """
    used_ids: dict[str, int] = {}
    for trace in traces:
        new_ids: dict[str, str] = {}
        for item in trace:
            if isinstance(item, Skipped):
                yield item
                continue
            new_id = new_ids.get(item.session)
            if new_id is None:
                new_id = new_ids[item.session] = unused_id(item.session, used_ids)
                if new_id != item.session:
                    yield RenamedSession(str(trace.path), item.session, new_id)
            if new_id != item.session:
                item = msgspec.structs.replace(item, session=new_id)
            if (
                isinstance(item, SessionStarted)
                and new_ids.get(item.parent, item.parent) != item.parent
            ):
                item = msgspec.structs.replace(item, parent=new_ids[item.parent])
            yield item


def read_trees(files: Sequence[Path], rows: Rows = ALL_ROWS) -> Iterator[TraceFile]:
    """Yield the traces of files, those of one session tree merged.

    Events that start a session name its file as `source`, for labels name that. What was converted
    before keeps its own.
    """
    reader = Reader(rows=rows)
    for tree in find_session_trees(files, rows=rows):
        first, *others = tree.indices
        if others:
            merged = InterleavedFiles(reader, files, tree)
            yield TraceFile(files[first], None, _name_sources(merged, merged))
        else:
            for trace in reader.iter_files(files[first]):
                yield TraceFile(trace.path, trace.format, _name_sources(trace, trace))


def _name_sources(items: Iterable[Item], located: TraceFile | InterleavedFiles) -> Iterator[Item]:
    for item in items:
        if isinstance(item, SessionStarted) and not item.source:
            trace = located if isinstance(located, TraceFile) else located.trace
            item = msgspec.structs.replace(item, source=str(trace.path))
        yield item


def unused_id(session: str, used_ids: dict[str, int]) -> str:
    """Return the id, or the first unused of `id#1`, `id#2` …, and mark it as used.

    `used_ids` maps each id to the last number tried for it.
    """
    candidate = session
    while candidate in used_ids:
        used_ids[session] += 1
        candidate = f"{session}#{used_ids[session]}"
    used_ids[candidate] = 0
    return candidate
