"""CEL's operators on plain Python values.

Two traps of Python shape this module: `True == 1`, while CEL's `true == 1` is false, so classes are
compared before values; and a container's `==` and `in` treat an element as equal to itself, while
NaN is not.

An undefined operation raises `OperationError`. The rules are those of cel-spec langdef.md,
"Operators" and "Equality".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from policyguard.cel.errors import CelLimitError, OperationError
from policyguard.cel.runtime.cost_limits import COST_LIMITS
from policyguard.cel.types.key_set import KeySet
from policyguard.cel.types.times import Duration, Timestamp
from policyguard.cel.types.uint import INT_MAX, INT_MIN, UINT_MAX, Uint
from policyguard.cel.types.values import describe_type, no_such_overload

_NUMBER_CLASSES: Final = frozenset({int, float, Uint})
_ORDERED_CLASSES: Final = frozenset({int, float, Uint, str, bytes, bool, Timestamp, Duration})
_KEY_CLASSES: Final = frozenset({str, bool, int, Uint, float})
_LIST_CLASSES: Final = frozenset({list, tuple})

ChargeReads = Callable[[int], None]
"""Counts elements before they are read, and raises if there are too many."""


def equals(left: Any, right: Any, charge: ChargeReads | None = None) -> bool:
    """`left == right`. Values of unrelated types are not equal, which is not an error.

    `charge` receives the number of elements before containers are compared.
    """
    left_class = left.__class__
    right_class = right.__class__
    if left_class is right_class:
        if left_class is list or left_class is dict or left_class is tuple:
            return _equal_containers(left, right, charge)
        same: bool = left == right
        return same
    if left_class in _NUMBER_CLASSES and right_class in _NUMBER_CLASSES:
        return _equal_numbers(left, right)
    return (
        left_class in _LIST_CLASSES
        and right_class in _LIST_CLASSES
        and _equal_containers(left, right, charge)
    )


def _equal_numbers(left: Any, right: Any) -> bool:
    """Compare numbers of different types by value; beside a double, convert the other to one.

    Python would compare exactly. The specification's tests have 9223372036854775807 and
    9223372036854775808.0 equal (`comparisons/lte_literal/lte_dyn_int_big_lossy_double`).
    """
    if left.__class__ is float or right.__class__ is float:
        return float(left) == float(right)
    same: bool = left == right
    return same


def _equal_containers(left: Any, right: Any, charge: ChargeReads | None) -> bool:
    """Compare deeply without recursion, so that neither depth nor a cycle exhausts the stack."""
    remaining = COST_LIMITS.max_compared_elements
    pending = [(left, right)]
    while pending:
        left, right = pending.pop()
        if len(left) != len(right):
            return False
        remaining -= len(left)
        if remaining < 0:
            raise CelLimitError(
                "limit-compared",
                f"a comparison visits more than {COST_LIMITS.max_compared_elements} elements",
            )
        if charge is not None:
            charge(len(left))
        if left.__class__ is dict:
            pairs: list[tuple[Any, Any]] = []
            for key, value in left.items():
                if not has_key(right, key):
                    return False
                pairs.append((value, right[key]))
        else:
            pairs = list(zip(left, right, strict=True))
        for item, other in pairs:
            item_class = item.__class__
            other_class = other.__class__
            if item_class is dict or item_class in _LIST_CLASSES:
                if item_class is other_class or (
                    item_class in _LIST_CLASSES and other_class in _LIST_CLASSES
                ):
                    pending.append((item, other))
                else:
                    return False
            elif item_class is other_class:
                if item != other:
                    return False
            elif (
                item_class not in _NUMBER_CLASSES
                or other_class not in _NUMBER_CLASSES
                or not _equal_numbers(item, other)
            ):
                return False
    return True


def has_key(mapping: dict[Any, Any], key: Any) -> bool:
    """Whether `key` is a key of `mapping`: numbers by value, but `true` never equals 1."""
    key_class = key.__class__
    if key_class is str:
        return key in mapping
    if key_class is bool:
        return key in mapping and any(candidate is key for candidate in mapping)
    if key_class in _NUMBER_CLASSES:
        return key in mapping and not any(
            candidate.__class__ is bool and candidate == key for candidate in mapping
        )
    return False


def is_in(element: Any, container: Any, charge: ChargeReads | None = None) -> bool:
    """`element in container`: an element of a list, or a key of a map. `charge` as in `equals`."""
    if container.__class__ is list or container.__class__ is tuple:
        if element.__class__ is str:
            return element in container
        return any(equals(element, candidate, charge) for candidate in container)
    if container.__class__ is dict and element.__class__ in _KEY_CLASSES:
        return has_key(container, element)
    if container.__class__ is KeySet:
        return element.__class__ is str and container.has(element)
    raise no_such_overload("in", element, container)


def _make_ordering(symbol: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def ordered(left: Any, right: Any) -> bool:
        left_class = left.__class__
        right_class = right.__class__
        if left_class is right_class:
            if left_class in _ORDERED_CLASSES:
                return compare(left, right)
        elif left_class in _NUMBER_CLASSES and right_class in _NUMBER_CLASSES:
            if left_class is float or right_class is float:
                return compare(float(left), float(right))
            return compare(left, right)
        raise no_such_overload(symbol, left, right)

    return ordered


less: Final = _make_ordering("<", operator.lt)
less_or_equal: Final = _make_ordering("<=", operator.le)
greater: Final = _make_ordering(">", operator.gt)
greater_or_equal: Final = _make_ordering(">=", operator.ge)


def _overflow(kind: str) -> OperationError:
    return OperationError("overflow", f"the result does not fit into a 64-bit {kind}")


def _check_int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise _overflow("integer")


def _check_uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise _overflow("unsigned integer")


def add(left: Any, right: Any) -> Any:
    """`left + right`: numbers of one type, strings, bytes, lists, timestamps with durations."""
    left_class = left.__class__
    right_class = right.__class__
    if left_class is right_class:
        if left_class is int:
            return _check_int(left + right)
        if left_class is str or left_class is bytes:
            check_string_length(len(left) + len(right))
            return left + right
        if left_class is float:
            return left + right
        if left_class is Uint:
            return _check_uint(int(left) + int(right))
        if left_class is Duration:
            return Duration.from_ns(left.ns + right.ns)
    if left_class in _LIST_CLASSES and right_class in _LIST_CLASSES:
        check_list_length(len(left) + len(right))
        return [*left, *right]
    if left_class is Timestamp and right_class is Duration:
        return Timestamp.from_ns(left.ns + right.ns)
    if left_class is Duration and right_class is Timestamp:
        return Timestamp.from_ns(left.ns + right.ns)
    raise no_such_overload("+", left, right)


def subtract(left: Any, right: Any) -> Any:
    """`left - right`: numbers of one type, timestamps, durations."""
    left_class = left.__class__
    right_class = right.__class__
    if left_class is right_class:
        if left_class is int:
            return _check_int(left - right)
        if left_class is float:
            return left - right
        if left_class is Uint:
            return _check_uint(int(left) - int(right))
        if left_class is Timestamp or left_class is Duration:
            return Duration.from_ns(left.ns - right.ns)
    elif left_class is Timestamp and right_class is Duration:
        return Timestamp.from_ns(left.ns - right.ns)
    raise no_such_overload("-", left, right)


def multiply(left: Any, right: Any) -> Any:
    """`left * right`: numbers of one type."""
    left_class = left.__class__
    if left_class is right.__class__:
        if left_class is int:
            return _check_int(left * right)
        if left_class is float:
            return left * right
        if left_class is Uint:
            return _check_uint(int(left) * int(right))
    raise no_such_overload("*", left, right)


def divide(left: Any, right: Any) -> Any:
    """`left / right`: integers round towards zero; doubles follow IEEE 754, so 1.0 / 0.0 is ∞."""
    left_class = left.__class__
    if left_class is right.__class__:
        if left_class is int:
            quotient = abs(left) // abs(_check_divisor(right))
            return _check_int(quotient if (left < 0) == (right < 0) else -quotient)
        if left_class is float:
            if right != 0.0:
                return left / right
            if left == 0.0 or math.isnan(left):
                return math.nan
            return math.copysign(math.inf, left) * math.copysign(1.0, right)
        if left_class is Uint:
            return Uint(int(left) // _check_divisor(int(right)))
    raise no_such_overload("/", left, right)


def modulo(left: Any, right: Any) -> Any:
    """`left % right`: integers; the result has the sign of `left`.

    The smallest integer modulo -1 overflows, as its quotient does.
    """
    left_class = left.__class__
    if left_class is right.__class__:
        if left_class is int:
            rest = abs(left) % abs(_check_divisor(right))
            if left == INT_MIN and right == -1:
                raise _overflow("integer")
            return -rest if left < 0 else rest
        if left_class is Uint:
            return Uint(int(left) % _check_divisor(int(right)))
    raise no_such_overload("%", left, right)


def _check_divisor(value: int) -> int:
    if value == 0:
        raise OperationError("division-by-zero", "division by zero")
    return value


def negate(value: Any) -> Any:
    """`-value`: int and double."""
    if value.__class__ is int:
        return _check_int(-value)
    if value.__class__ is float:
        return -value
    raise no_such_overload("-", value)


def not_(value: Any) -> bool:
    """`!value`."""
    if value is True:
        return False
    if value is False:
        return True
    raise no_such_overload("!", value)


def reject_non_bool(value: Any) -> bool:
    """Raise for a condition that is not bool."""
    raise OperationError(
        "no-such-overload", f"a condition must be bool, not {describe_type(value)}"
    )


def check_string_length(size: int) -> None:
    """Refuse to build a string or bytes longer than the limit."""
    if size > COST_LIMITS.max_string_length:
        raise CelLimitError(
            "limit-string",
            f"the expression builds a string longer than {COST_LIMITS.max_string_length}",
        )


def check_list_length(count: int) -> None:
    """Refuse to build a list longer than the limit."""
    if count > COST_LIMITS.max_list_length:
        raise CelLimitError(
            "limit-elements",
            f"the expression builds a list longer than {COST_LIMITS.max_list_length}",
        )
