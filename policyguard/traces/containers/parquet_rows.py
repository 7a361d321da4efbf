"""Conditions on a Parquet file: which row groups may have rows for one, and which rows are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from policyguard.traces.containers.content import too_large
from policyguard.traces.containers.expansion_limit import BUFFER_BYTES
from policyguard.traces.containers.row_filter import (
    COMPARE,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Not,
    OneOf,
    Value,
)
from policyguard.traces.item import UnreadableError

if TYPE_CHECKING:
    import pyarrow

_PIECE_BYTES = 4 << 20
_Range = tuple[Any, Any]
"""The least and the greatest value of a column in a row group."""


def with_types(condition: Condition, schema: pyarrow.Schema) -> Condition:
    """Return a condition whose values are of their columns' types. Raises `UnreadableError`."""
    match condition:
        case Comparison(column, operator, value):
            return Comparison(column, operator, _convert(value, column, schema))
        case OneOf(column, values):
            return OneOf(column, tuple(_convert(one, column, schema) for one in values))
        case Not(inner):
            return Not(with_types(inner, schema))
        case AllOf(conditions) | AnyOf(conditions):
            return type(condition)(tuple(with_types(one, schema) for one in conditions))
    return condition


def find_groups(metadata: Any, condition: Condition) -> list[int]:
    """Return the row groups that may have rows for a condition, by their statistics."""
    groups = range(metadata.num_row_groups)
    if condition is True:
        return [*groups]
    return [number for number in groups if _may_match(condition, _ranges(metadata, number))]


def find_repeated(metadata: Any) -> list[str]:
    """Return the columns that stay dictionaries, so that no value is copied for each row."""
    return sorted(
        {
            column.path_in_schema
            for number in range(metadata.num_row_groups)
            for column in map(metadata.row_group(number).column, range(metadata.num_columns))
            if column.physical_type == "BYTE_ARRAY" and column.has_dictionary_page
        }
    )


def require_bounded(metadata: Any, groups: list[int], columns: list[str]) -> None:
    """Raise `UnreadableError` for a row group that is too large to be held in memory."""
    for number in groups:
        group = metadata.row_group(number)
        chunks = (group.column(index) for index in range(group.num_columns))
        size = sum(
            chunk.total_uncompressed_size
            for chunk in chunks
            if chunk.path_in_schema.split(".")[0] in columns
        )
        if size > BUFFER_BYTES:
            raise UnreadableError(too_large("a row group", BUFFER_BYTES))


def split_batch(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """Yield a batch in pieces whose values take little memory, however often they repeat."""
    from pyarrow import compute

    width = 1
    for column in batch.columns:
        if hasattr(column, "dictionary"):
            lengths = compute.binary_length(column.dictionary) if len(column.dictionary) else None
            width += (compute.max(lengths).as_py() or 0) if lengths is not None else 0
        else:
            width += column.nbytes // max(1, len(column))
    rows = max(1, _PIECE_BYTES // width)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def select_rows(batch: pyarrow.RecordBatch, condition: Condition) -> pyarrow.RecordBatch:
    """Return the rows of a batch for which a condition holds."""
    return batch if condition is True else batch.filter(_mask(batch, condition))


def _ranges(metadata: Any, number: int) -> dict[str, _Range]:
    group = metadata.row_group(number)
    ranges: dict[str, _Range] = {}
    for index in range(group.num_columns):
        column = group.column(index)
        known = column.statistics
        if known is not None and known.has_min_max:
            ranges[column.path_in_schema] = known.min, known.max
    return ranges


def _may_match(condition: Condition, ranges: dict[str, _Range], *, negated: bool = False) -> bool:
    """Whether a row may meet a condition, or with `negated` its opposite. A null meets neither."""
    match condition:
        case bool():
            return condition is not negated
        case Not(inner):
            return _may_match(inner, ranges, negated=not negated)
        case AllOf(conditions) | AnyOf(conditions):
            needs_all = isinstance(condition, AllOf) is not negated
            found = (_may_match(one, ranges, negated=negated) for one in conditions)
            return all(found) if needs_all else any(found)
        case Comparison(column, operator, value) if column in ranges:
            return _may_compare(ranges[column], operator, value, negated=negated)
        case OneOf(column, values) if column in ranges:
            equal = [_may_compare(ranges[column], "==", one, negated=negated) for one in values]
            return all(equal) if negated else any(equal)
    return True


_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _may_compare(range_: _Range, operator: str, value: Value, *, negated: bool) -> bool:
    low, high = range_
    if isinstance(value, float) and math.isnan(value):
        return True
    try:
        match _OPPOSITE[operator] if negated else operator:
            case "==":
                return bool(low <= value <= high)
            case "!=":
                return not (low == value == high)
            case "<" | "<=" as less:
                return COMPARE[less](low, value)
            case other:
                return COMPARE[other](high, value)
    except TypeError:  # statistics of another kind
        return True


def _mask(batch: pyarrow.RecordBatch, condition: Condition) -> Any:
    import pyarrow as arrow
    from pyarrow import compute

    match condition:
        case Comparison(column, operator, value):
            compare = {
                "==": compute.equal,
                "!=": compute.not_equal,
                "<": compute.less,
                "<=": compute.less_equal,
                ">": compute.greater,
                ">=": compute.greater_equal,
            }[operator]
            array = _column(batch, column)
            return compare(array, arrow.scalar(value, array.type))
        case OneOf(column, values):
            array = _column(batch, column)
            found = compute.is_in(array, arrow.array([*values], array.type))
            return compute.if_else(array.is_valid(), found, None)
        case Not(inner):
            return compute.invert(_mask(batch, inner))
        case AllOf(conditions) | AnyOf(conditions):
            combine = compute.and_kleene if isinstance(condition, AllOf) else compute.or_kleene
            first, *others = (_mask(batch, one) for one in conditions)
            for other in others:
                first = combine(first, other)
            return first
    return arrow.array([condition] * batch.num_rows, arrow.bool_())


def _column(batch: pyarrow.RecordBatch, name: str) -> Any:
    import pyarrow as arrow

    column = batch.column(name)
    return column.dictionary_decode() if arrow.types.is_dictionary(column.type) else column


def _convert(value: Value, column: str, schema: pyarrow.Schema) -> Any:
    import pyarrow as arrow

    kind = schema.field(column).type
    if arrow.types.is_dictionary(kind):
        kind = kind.value_type
    try:
        if isinstance(value, datetime) and arrow.types.is_date(kind):
            return value.date()
        return arrow.scalar(value).cast(kind).as_py()
    except (arrow.ArrowException, ValueError, TypeError):
        raise UnreadableError(
            f"its column `{column:.60}` is of type {kind}, which is not compared with {value!r:.40}"
        ) from None
