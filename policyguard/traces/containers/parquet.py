"""Parquet files of recordings, read as the lines of policyguard's own format.

A file that `traces convert --to parquet` wrote has these lines in a column, and others to select
by. Of another file each row is a call with its result; `columns` says which column is what. Only
the columns and row groups that are needed are read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from policyguard.traces.containers.compression import open_stream
from policyguard.traces.containers.content import Content, open_seekable
from policyguard.traces.containers.expansion_limit import BUFFER_BYTES, ExpansionLimit, StreamMeter
from policyguard.traces.containers.parquet_rows import (
    find_groups,
    find_repeated,
    require_bounded,
    select_rows,
    split_batch,
    with_types,
)
from policyguard.traces.containers.row_filter import (
    Condition,
    Rows,
    find_columns,
    partitions_of,
    simplify,
)
from policyguard.traces.item import TraceError, UnreadableError
from policyguard.traces.parsing.measurements import from_datetime, from_iso

if TYPE_CHECKING:
    import pyarrow
    from _typeshed import WriteableBuffer
    from pyarrow import parquet

MAGIC = b"PAR1"
LINE = "line"
"""The column that has a whole event, as `traces convert` writes it."""
FIELDS = (
    "session", "tool", "args", "result", "error", "ok", "at", "call", "agent", "user", "project",
    "success",
)  # fmt: skip
"""What a column of another schema can be."""
_BATCH_ROWS = 2048
_MAX_SESSIONS = 100_000
"""Sessions of a file that are remembered as begun."""


def parse_columns(text: str) -> dict[str, str]:
    """Parse `session=run_id,tool=name`. Raises `TraceError`."""
    columns: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        field, is_pair, column = (part.strip() for part in pair.partition("="))
        if field not in FIELDS or not is_pair or not column:
            raise TraceError(
                f"--columns: `{pair:.60}` is not FIELD=COLUMN; fields: {', '.join(FIELDS)}"
            )
        columns[field] = column
    return columns


class ParquetLines:
    """The lines of a Parquet content. See `Content`."""

    max_bytes = BUFFER_BYTES

    def __init__(self, inner: Content, limit: ExpansionLimit, rows: Rows) -> None:
        self.path = inner.path
        self.name = inner.name.removesuffix(".parquet")
        self._inner = inner
        self._meter = StreamMeter(limit)
        self._rows = rows

    def open_preview(self) -> BinaryIO:
        """Open the lines from the start."""
        return self._open(None)

    def open(self) -> BinaryIO:
        """Open the lines from the start, once."""
        return self._open(self._rows.count)

    def _open(self, count: Callable[[int], None] | None) -> BinaryIO:
        try:
            import pyarrow as arrow
            from pyarrow import parquet
        except ImportError:
            raise UnreadableError(
                "Parquet needs the package pyarrow: pip install 'policyguard-engine[lake]'"
            ) from None
        file = _CountedFile(open_seekable(self._inner), count)
        condition = simplify(self._rows.condition, partitions_of(self.path))
        try:
            source = arrow.PythonFile(file, mode="r")
            metadata = parquet.read_metadata(source)
            opened = parquet.ParquetFile(
                source,
                metadata=metadata,
                read_dictionary=find_repeated(metadata),
                pre_buffer=False,  # a row group at a time
                page_checksum_verification=True,
            )
            chunks = self._read(opened, condition) if condition is not False else iter(())
        except (arrow.ArrowException, ValueError, OSError) as error:
            file.close()
            raise UnreadableError(f"no Parquet that can be read: {_first_line(error)}") from None
        except UnreadableError:
            file.close()
            raise
        return open_stream(chunks, self._meter, file.close)

    def _read(self, file: parquet.ParquetFile, condition: Condition) -> Iterator[bytes]:
        import pyarrow as arrow

        schema = file.schema_arrow
        asked = find_columns(condition)
        missing = sorted(asked - {*schema.names})
        if missing:
            names = ", ".join(schema.names[:12])
            raise UnreadableError(f"has no column `{missing[0]:.60}` for --where; it has {names}")
        condition = with_types(condition, schema)
        is_own = LINE in schema.names and not self._rows.columns
        fields = {} if is_own else self._find_columns(schema)
        needed = [LINE] if is_own else list(dict.fromkeys(fields.values()))
        columns = [*needed, *(asked - {*needed})]
        groups = find_groups(file.metadata, condition)
        require_bounded(file.metadata, groups, columns)
        batches = file.iter_batches(
            batch_size=_BATCH_ROWS, row_groups=groups, columns=columns, use_threads=False
        )

        def read() -> Iterator[bytes]:
            begun: dict[str, int] = {}
            try:
                for batch in batches:
                    for rows in split_batch(batch):
                        chosen = select_rows(rows, condition)
                        if is_own:
                            lines = chosen.column(LINE).to_pylist()
                            yield b"".join(_line(line) for line in lines if line)
                        else:
                            values = _with_integer_times(chosen, fields.get("at")).to_pylist()
                            yield b"".join(_row_lines(row, fields, begun) for row in values)
            except (arrow.ArrowException, ValueError, OSError) as error:
                raise UnreadableError(f"damaged Parquet: {_first_line(error)}") from None

        return read()

    def _find_columns(self, schema: pyarrow.Schema) -> dict[str, str]:
        """Return the columns of another schema by field, those of the same name by default."""
        found = {field: field for field in FIELDS if field in schema.names} | {**self._rows.columns}
        for field, column in found.items():
            if column not in schema.names:
                names = ", ".join(schema.names[:12])
                raise UnreadableError(f"has no column `{column:.60}` for `{field}`; it has {names}")
        if not {"session", "tool"} <= found.keys():
            raise UnreadableError(
                "Parquet without a column for `session` and one for `tool`: "
                "name them with --columns session=…,tool=…"
            )
        return found


class _CountedFile(io.RawIOBase):
    """A file that counts what is read of it."""

    def __init__(self, file: BinaryIO, count: Callable[[int], None] | None) -> None:
        self._file, self._count = file, count

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._file.read(len(view))
        view[: len(data)] = data
        if self._count is not None:
            self._count(len(data))
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _with_integer_times(batch: pyarrow.RecordBatch, column: str | None) -> pyarrow.RecordBatch:
    """Return a batch with a column of times as nanoseconds, which no `datetime` can hold."""
    import pyarrow as arrow

    if column is None or not arrow.types.is_timestamp(batch.schema.field(column).type):
        return batch
    times = batch.column(column).cast(arrow.timestamp("ns")).cast(arrow.int64())
    return batch.set_column(batch.schema.get_field_index(column), column, times)


def _line(line: str | bytes) -> bytes:
    data = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
    return data.replace(b"\n", b" ") + b"\n"


def _row_lines(row: Mapping[str, Any], fields: Mapping[str, str], begun: dict[str, int]) -> bytes:
    """Return the events of a row of another schema: a call and its result."""
    values = {field: row[column] for field, column in fields.items()}
    session = str(values["session"] or "")
    at = _time(values.get("at"))
    base: dict[str, Any] = {"session": session, **({"at": at} if at is not None else {})}
    events: list[dict[str, Any]] = []
    number = begun[session] = begun.get(session, 0) + 1
    if number == 1:
        if len(begun) > _MAX_SESSIONS:
            del begun[next(iter(begun))]
        owner = {
            name: str(values[name]) for name in ("agent", "user", "project") if values.get(name)
        }
        events.append({"event": "started", **base, **owner})
    call = str(values.get("call") or f"r{number}")
    tool = str(values["tool"] or "")
    if tool:
        events.append(
            {
                "event": "admitted",
                **base,
                "call": call,
                "tool": tool,
                "args": _args(values.get("args")),
            }
        )
        if not {"result", "error", "ok"}.isdisjoint(fields):
            error, ok = values.get("error"), values.get("ok")
            result = {"ok": bool(ok)} if ok is not None else {"ok": error is None or error == ""}
            text = values.get("result")
            more = (
                {"text": text if isinstance(text, str) else _encode(text).decode()} if text else {}
            )
            failed = {"error": str(error)} if error else {}
            events.append({"event": "completed", **base, "call": call, **result, **more, **failed})
    if values.get("success") is not None:
        events.append({"event": "closed", **base, "success": bool(values["success"])})
    return b"".join(_encode(event) + b"\n" for event in events)


def _args(value: object) -> object:
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return {"text": value}
    if isinstance(value, list) and all(isinstance(one, tuple) and len(one) == 2 for one in value):
        value = dict(value)  # a column of maps
    return value if isinstance(value, dict) else {} if value is None else {"value": value}


def _time(value: object) -> int | None:
    if isinstance(value, datetime):
        return from_datetime(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value >= 0 else None
    return from_iso(value)


_encode = msgspec.json.Encoder(enc_hook=lambda value: _plain(value)).encode


def _plain(value: object) -> object:
    if isinstance(value, date | datetime):
        return value.isoformat()
    return str(value)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
