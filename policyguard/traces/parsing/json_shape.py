"""Access to untrusted JSON by its expected shape; anything else counts as empty.

One odd field of a trace must not cost the rest of it.
"""

from __future__ import annotations

from typing import Any


def as_object(value: object) -> dict[str, Any]:
    """Return the object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return the list, or an empty one."""
    return value if isinstance(value, list) else []


def as_objects(value: object) -> list[dict[str, Any]]:
    """Return the objects in the list, without its other items."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_string(value: object) -> str:
    """Return the string, or an empty one."""
    return value if isinstance(value, str) else ""


def as_id(value: object) -> str:
    """Return an id, which some formats write as a number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return as_string(value)


def as_amount(value: object) -> int | float | None:
    """Return the number if it is at least 0 and below 2**53, where doubles lose integers."""
    number = as_number(value)
    return number if number is not None and 0 <= number < 2**53 else None


def as_number(value: object) -> int | float | None:
    """Return the number; true and false are not numbers."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def as_seconds(value: object) -> float | None:
    """Return a duration in seconds."""
    amount = as_amount(value)
    return None if amount is None else float(amount)


def as_exit_code(value: object) -> int | None:
    """Return the exit code, an integer that a double holds exactly."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return value
    return None
