"""JSON of unknown shape, read by the shape that is hoped for: anything else counts as empty.

A trace is untrusted, and one odd field must not cost the rest of it.
"""

from __future__ import annotations

from typing import Any


def as_object(value: object) -> dict[str, Any]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """The list, or an empty one."""
    return value if isinstance(value, list) else []


def as_objects(value: object) -> list[dict[str, Any]]:
    """The objects in the list; its other items are left out."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_string(value: object) -> str:
    """The string, or an empty one."""
    return value if isinstance(value, str) else ""


def as_id(value: object) -> str:
    """An identifier, which some write as a number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return as_string(value)


def as_amount(value: object) -> int | float | None:
    """The number, where it is no less than 0 and no larger than a double counts by ones."""
    number = as_number(value)
    return number if number is not None and 0 <= number < 2**53 else None


def as_number(value: object) -> int | float | None:
    """The number; true and false are none."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
