"""Events as Parquet: whole lines of policyguard's own format, with columns to select sessions by.

The rows of a session and its sub-agents stand together, in their order; each has the session's
agent, user, project, date and outcome. So `--where` selects whole sessions, and reads the row
groups that it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import IO, Any

from policyguard.journal.format import encode
from policyguard.model.event import Admitted, Completed, Event, SessionEnded, SessionStarted
from policyguard.traces.containers.parquet import LINE

try:
    import pyarrow as arrow
    from pyarrow import parquet
except ImportError as missing:
    raise ImportError(
        f"Parquet needs the package {missing.name}: pip install 'policyguard-engine[lake]'"
    ) from None

_GROUP_BYTES = 8 << 20
"""Lines of a row group, before compression: what a reader holds in memory at once."""
_HELD_BYTES = 64 << 20
"""Lines of sessions that have not ended; beyond it the one that is longest silent is written."""
_SCHEMA = arrow.schema(
    [
        ("session", arrow.string()),
        ("date", arrow.date32()),
        ("agent", arrow.string()),
        ("user", arrow.string()),
        ("project", arrow.string()),
        ("success", arrow.bool_()),
        ("event", arrow.string()),
        ("tool", arrow.string()),
        ("ok", arrow.bool_()),
        (LINE, arrow.binary()),
    ]
)


class _Family:
    """The lines of a session and its sub-agents, `names`, that are not written yet.

    All rows say what its first session is. `open` are the sessions that have not ended.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.open: set[str] = set()
        self.names: dict[str, None] = {root: None}
        self.date: date | None = None
        self.agent = self.user = self.project = ""
        self.success: bool | None = None
        self.rows: list[tuple[str, str, str, bool | None, bytes]] = []
        self.size = 0

    def add(self, event: Event, line: bytes) -> None:
        """Add an event of one of its sessions."""
        is_root = event.session == self.root
        match event:
            case SessionStarted():
                self.open.add(event.session)
                self.names[event.session] = None
                if is_root:
                    self.agent, self.user, self.project = event.agent, event.user, event.project
                    self.date = _date(event.at if event.wall is None else event.wall)
            case SessionEnded():
                self.open.discard(event.session)
                if is_root and event.success is not None:
                    self.success = event.success
        tool = event.tool if isinstance(event, Admitted) else ""
        ok = event.ok if isinstance(event, Completed) else None
        kind = str(type(event).__struct_config__.tag)
        self.rows.append((event.session, kind, tool, ok, line))
        self.size += len(line)


class _Writer:
    """Collects rows into row groups."""

    def __init__(self, file: IO[bytes]) -> None:
        self._parquet = parquet.ParquetWriter(
            file,
            _SCHEMA,
            compression="zstd",
            write_page_checksum=True,
            use_dictionary=[name for name in _SCHEMA.names if name != LINE],
            write_statistics=[name for name in _SCHEMA.names if name != LINE],
        )
        self._columns: list[list[Any]] = [[] for _ in _SCHEMA]
        self._size = 0

    def write(self, family: _Family) -> None:
        """Write the rows of a family."""
        own = (family.date, family.agent, family.user, family.project, family.success)
        for session, event, tool, ok, line in family.rows:
            row = (session, *own, event, tool, ok, line)
            for column, value in zip(self._columns, row, strict=True):
                column.append(value)
        self._size += family.size
        family.rows, family.size = [], 0
        if self._size >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        self._flush()
        self._parquet.close()

    def _flush(self) -> None:
        if self._columns[0]:
            arrays = [arrow.array(c, t) for c, t in zip(self._columns, _SCHEMA.types, strict=True)]
            self._parquet.write_table(arrow.Table.from_arrays(arrays, schema=_SCHEMA))
        self._columns, self._size = [[] for _ in _SCHEMA], 0


def write_parquet(events: Iterable[Event], file: IO[bytes]) -> int:
    """Write events as Parquet; return how many."""
    writer = _Writer(file)
    families: dict[str, _Family] = {}  # by each of their sessions, the latest is last
    size = count = 0
    for event in events:
        count += 1
        name = event.session
        family = families.pop(name, None)
        if family is None:
            parent = event.parent if isinstance(event, SessionStarted) else ""
            family = families.get(parent) or _Family(name)
        families[name] = family
        line = encode(event)
        family.add(event, line)
        size += len(line)
        if not family.open:
            size -= family.size
            writer.write(family)
            for ended in family.names:
                families.pop(ended, None)
        elif size > _HELD_BYTES:
            oldest = next(one for one in families.values() if one.size)
            size -= oldest.size
            writer.write(oldest)  # its later rows have the same columns, but perhaps an outcome
    for family in dict.fromkeys(families.values()):
        writer.write(family)
    writer.close()
    return count


def _date(at: int | None) -> date | None:
    """Return the day (UTC) of a time in nanoseconds, if it has one."""
    try:
        return None if at is None else datetime.fromtimestamp(at // 10**9, UTC).date()
    except (OverflowError, ValueError, OSError):
        return None
