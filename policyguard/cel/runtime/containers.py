"""Fields, elements and sizes of lists, maps and strings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from policyguard.cel.errors import CelLimitError, OperationError
from policyguard.cel.runtime.cost_limits import COST_LIMITS
from policyguard.cel.runtime.operators import equals, has_key
from policyguard.cel.types.key_set import KeySet
from policyguard.cel.types.uint import Uint
from policyguard.cel.types.values import describe_type, no_such_overload

_SIZED: Final[frozenset[Any]] = frozenset({str, bytes, list, tuple, dict, KeySet})


def index(container: Any, key: Any) -> Any:
    """`container[key]`: an element of a list, or the value of a map.

    A list takes an integer, or a double with an integer value (cel-spec tests `lists/index`).
    """
    container_class = container.__class__
    if container_class is dict:
        if has_key(container, key):
            return container[key]
        raise KeyError(key)
    if container_class is list or container_class is tuple:
        position = key
        if key.__class__ is float and key.is_integer():
            position = int(key)
        elif key.__class__ is not int and key.__class__ is not Uint:
            raise no_such_overload("[]", container, key)
        if 0 <= position < len(container):
            return container[position]
        message = f"index {position} is out of range for a list of {len(container)}"
        raise OperationError("index-out-of-range", message)
    if isinstance(container, Mapping) and key.__class__ is str:
        return container[key]
    raise no_such_overload("[]", container, key)


def has_field(container: Any, field: str) -> bool:
    """`has(container.field)`."""
    if isinstance(container, Mapping):
        return field in container
    raise OperationError("no-such-overload", f"{describe_type(container)} has no fields")


def size(value: Any) -> int:
    """`size(value)`: the code points of a string, the bytes, the elements, the entries."""
    if value.__class__ in _SIZED:
        length: int = len(value)
        return length
    raise no_such_overload("size", value)


def elements(container: Any) -> list[Any] | tuple[Any, ...] | dict[Any, Any]:
    """Return what a macro with one variable visits: a list's elements or a map's keys."""
    if container.__class__ in (list, dict, tuple):
        collection: list[Any] | tuple[Any, ...] | dict[Any, Any] = container
        return collection
    message = f"a macro needs a list or a map, not {describe_type(container)}"
    raise OperationError("no-such-overload", message)


def pairs(container: Any) -> Iterable[tuple[Any, Any]]:
    """Return what a macro with two variables visits: index and element, or key and value."""
    return container.items() if container.__class__ is dict else enumerate(container)


def make_map(*parts: Any) -> dict[Any, Any]:
    """Build a map from alternating keys and values.

    Keys are strings, bools and integers. A duplicate key is an error, and 1 and 1u are the same key
    (cel-spec langdef.md, "Map Creation Expressions"). A Python dict cannot hold both `true` and 1,
    so such a map is rejected too.
    """
    result: dict[Any, Any] = {}
    for position in range(0, len(parts), 2):
        key: Any = parts[position]
        if key.__class__ not in (str, int, Uint, bool):
            raise OperationError(
                "no-such-overload", f"{describe_type(key)} cannot be a key of a map"
            )
        if key in result:
            clash = next(other for other in result if other == key)
            if not equals(key, clash):
                message = "a map cannot have both a bool and the number equal to it as keys"
                raise OperationError("unsupported", message)
            raise OperationError("duplicate-key", "a key occurs twice in a map")
        result[key] = parts[position + 1]
    return result


def too_many_iterations() -> CelLimitError:
    """Return the error for macros that visit too many elements."""
    return CelLimitError(
        "limit-iterations", f"the macros visit more than {COST_LIMITS.max_iterations} elements"
    )
