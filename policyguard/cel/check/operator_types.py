"""The types that arithmetic and ordering accept (cel-spec langdef.md, "Operators")."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from policyguard.cel.syntax.ast import Binary, Constant
from policyguard.cel.types.types import (
    BOOL,
    DURATION,
    DYN,
    NUMERIC_TYPES,
    TIMESTAMP,
    ListType,
    RecordType,
    Type,
    is_comparable,
    join_types,
)
from policyguard.engines.lazy_pattern import lazy_pattern

_ORDERED_KINDS: Final = frozenset({"bool", "string", "bytes", "timestamp", "duration"})
# All other arithmetic has operands and a result of one kind: see `_KINDS_BY_OPERATOR`.
_MIXED_RESULTS: Final[dict[tuple[str, Type, Type], Type]] = {
    ("+", TIMESTAMP, DURATION): TIMESTAMP,
    ("+", DURATION, TIMESTAMP): TIMESTAMP,
    ("-", TIMESTAMP, DURATION): TIMESTAMP,
    ("-", TIMESTAMP, TIMESTAMP): DURATION,
}
_KINDS_BY_OPERATOR: Final[dict[str, frozenset[str]]] = {
    "+": frozenset({"int", "uint", "double", "string", "bytes", "list", "duration"}),
    "-": frozenset({"int", "uint", "double", "duration"}),
    "*": frozenset({"int", "uint", "double"}),
    "/": frozenset({"int", "uint", "double"}),
    "%": frozenset({"int", "uint"}),
}


_NUMBER: Final = lazy_pattern(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?")


def infer_arithmetic_type(operator: str, left: Type, right: Type) -> Type | None:
    """Return the type of `left + right` and the like; None if it is not defined."""
    if (mixed := _MIXED_RESULTS.get((operator, left, right))) is not None:
        return mixed
    if left.kind == right.kind and left.kind in _KINDS_BY_OPERATOR[operator]:
        return join_types(left, right)
    times = ("timestamp",) if operator in "+-" else ()
    return DYN if _is_dynamic(left, right, (*_KINDS_BY_OPERATOR[operator], *times)) else None


def is_ordered(left: Type, right: Type) -> bool:
    """Whether `left < right` and the like are defined."""
    if left in NUMERIC_TYPES and right in NUMERIC_TYPES:
        return True
    if left.kind == right.kind and left.kind in _ORDERED_KINDS:
        return True
    return _is_dynamic(left, right, (*_ORDERED_KINDS, *(number.kind for number in NUMERIC_TYPES)))


def _is_dynamic(left: Type, right: Type, possible: Iterable[str]) -> bool:
    """Whether one side is `dyn` and the other has a kind that the operator accepts."""
    kinds = {*possible, "dyn"}
    return DYN in (left, right) and left.kind in kinds and right.kind in kinds


def find_quoted_number(node: Binary, left: Type, right: Type) -> str | None:
    """Return the text of a number in quotes beside a value of unknown type; else None."""
    for kind, operand in ((left, node.right), (right, node.left)):
        text = operand.value if isinstance(operand, Constant) else None
        if kind == DYN and isinstance(text, str) and _NUMBER.fullmatch(text):
            return text
    return None


def suggest_membership(left: Type, right: Type) -> str | None:
    """Return help if a list is compared with what may be one of its items; else None."""
    for one, item in ((left, right), (right, left)):
        if isinstance(one, ListType) and is_comparable(one.element, item):
            return "write `item in list`"
    return None


def suggest_operands(node: Binary, left: Type, right: Type) -> str | None:
    """Return help for an operator that is not defined for its operands; else None."""
    if left in NUMERIC_TYPES and right in NUMERIC_TYPES:
        return "convert one side with `int(…)` or `double(…)`"
    if isinstance(node.left, Binary) and left == BOOL:
        return "join two comparisons with `&&`"
    if (literal := suggest_literal(node, left, right)) is not None:
        return literal
    for one in (left, right):
        if isinstance(one, RecordType):
            return f"name one of its fields: {', '.join(f'`.{field}`' for field in one.fields)}"
    is_text = node.operator == "+" and "string" in (left.kind, right.kind)
    return "convert the other side with `string(…)`" if is_text else None


def suggest_literal(node: Binary, left: Type, right: Type) -> str | None:
    """Return help if a time or number beside another is written as something else; else None."""
    for time, other, operand in ((left, right, node.right), (right, left, node.left)):
        text = operand.value if isinstance(operand, Constant) else None
        if time in NUMERIC_TYPES and isinstance(text, str) and _NUMBER.fullmatch(text):
            return f"write the number without quotes: `{text}`"
        if time not in (DURATION, TIMESTAMP) or other.kind not in ("int", "double", "string"):
            continue
        if time == TIMESTAMP and node.operator not in ("+", "-"):
            return "write a timestamp as `timestamp('2026-01-31T09:30:00Z')`"
        number = operand.value if isinstance(operand, Constant) else None
        seconds = number if isinstance(number, int | float) else 60
        return f"write a duration as `duration('{seconds}s')`"
    return None
