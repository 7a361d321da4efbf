"""Which types arithmetic and ordering are defined for (cel-spec langdef.md, "Operators")."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from policyguard.cel.types.types import DURATION, DYN, NUMERIC_TYPES, TIMESTAMP, Type, join_types

__all__ = ["infer_arithmetic_type", "is_ordered"]

_ORDERED_KINDS: Final = frozenset({"bool", "string", "bytes", "timestamp", "duration"})
# Arithmetic on two different types, or with a result of another type. Otherwise both operands
# have one of the types in `_SAME`, and so has the result.
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


def infer_arithmetic_type(operator: str, left: Type, right: Type) -> Type | None:
    """The type of `left + right` and the like; None where it is not defined."""
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
    """Whether one side is `dyn`, and the other is of a kind that the operator takes at all."""
    kinds = {*possible, "dyn"}
    return DYN in (left, right) and left.kind in kinds and right.kind in kinds


def suggest_time_literal(
    operator: str, left: Type, right: Type, constants: tuple[object, object]
) -> str | None:
    """How a time is written, where a number or a text stands beside one; None elsewhere.

    `constants` are the operands' values, where they are literals.
    """
    for kind, other, given in ((left, right, constants[1]), (right, left, constants[0])):
        if kind not in (DURATION, TIMESTAMP) or other.kind not in ("int", "double", "string"):
            continue
        if kind == TIMESTAMP and operator not in ("+", "-"):
            return "a point in time is written `timestamp('2026-01-31T09:30:00Z')`"
        seconds = given if isinstance(given, int | float) else 60
        return f"a span of time is written `duration('{seconds}s')`"
    return None
