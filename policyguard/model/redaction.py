"""Redaction of JSON values, part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RedactText = Callable[[str], str]
"""Replaces what a text must not hold; returns the same object if that is nothing."""


def redact_value(value: Any, redact: RedactText) -> Any:
    """Redact the texts, names and numbers of a value; return the same object if none is.

    Raises `RecursionError` for one that nests too deep, `ValueError` for an integer of thousands of
    digits, which Python does not format.
    """
    if isinstance(value, str):
        return redact(value)
    if value.__class__ is int or value.__class__ is float:
        digits = str(value)  # as JSON would hold them
        redacted = redact(digits)
        return value if redacted is digits else redacted
    if isinstance(value, (bytes, bytearray, memoryview)):
        text = bytes(value).decode("utf-8", "replace")
        redacted = redact(text)
        return value if redacted is text else redacted
    if isinstance(value, dict):
        fields = redact_items(value, redact, lambda item: redact_value(item, redact))
        same = fields.keys() == value.keys() and all(fields[key] is value[key] for key in value)
        return value if same else fields
    if isinstance(value, (list, tuple)):
        items = [redact_value(item, redact) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    return value


def redact_items(
    value: dict[Any, Any], redact: RedactText, redact_item: Callable[[Any], Any]
) -> dict[Any, Any]:
    """Redact an object's values by one function, and its names, which stay distinct, by another."""
    redacted: dict[Any, Any] = {}
    for key, item in value.items():
        text = key if isinstance(key, str) else str(key)
        redacted_text = redact(text)
        name = key if redacted_text is text else redacted_text
        if name in redacted:
            name = f"{name} {len(redacted) + 1}"
        while name in redacted:
            name = f"{name}'"
        redacted[name] = redact_item(item)
    return redacted
