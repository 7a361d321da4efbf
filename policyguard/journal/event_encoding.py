"""Encode events within bounds, so that whatever a caller passed can be read back."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from policyguard.journal.format import encode
from policyguard.journal.json_depth import ALWAYS_SHALLOW_BYTES, is_too_deep
from policyguard.model.event import Event, Refused
from policyguard.model.text import escape_surrogates

_ENCODE_ERRORS = (TypeError, ValueError, OverflowError, RecursionError)
"""The errors of encoders; UnicodeError is a ValueError."""


def encode_bounded(event: Event, max_bytes: int) -> tuple[bytes, bool]:
    """Encode an event as JSON; also return whether anything was omitted.

    `max_bytes` bounds each field: the bytes of an object, the characters of a text. Arguments that
    are not JSON, too large or too deep become None, such metadata and tags empty; longer texts are
    cut, and lone surrogates escaped.
    """
    try:
        line = encode(event)
    except _ENCODE_ERRORS:
        return _encode_reduced(event, max_bytes)
    size = len(line)
    if size > max_bytes or (size > ALWAYS_SHALLOW_BYTES and is_too_deep(line)):
        return _encode_reduced(event, max_bytes)
    if event.__class__ is Refused and not event.fingerprint and _to_json(event.args) is None:
        return _encode_reduced(event, max_bytes)  # unchecked arguments may be NaN
    return line, False


def _encode_reduced(event: Event, max_bytes: int) -> tuple[bytes, bool]:
    fields = {
        name: _reduce(getattr(event, name), max_bytes, default=None if name == "args" else {})
        for name in event.__struct_fields__
    }
    reduced = msgspec.structs.replace(event, **fields)
    return encode(reduced), reduced != event


def _to_json(value: object) -> Any:
    """Convert a value to plain JSON types; return None if JSON cannot represent it, such as NaN."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except _ENCODE_ERRORS:
        return None


def _reduce(value: Any, max_bytes: int, *, default: object) -> Any:
    if isinstance(value, str):
        text = value if value.isascii() else escape_surrogates(value)
        if len(text) > max_bytes:
            return f"{text[:max_bytes]}… [{len(text) - max_bytes} characters omitted]"
        return value if text == value else text
    if isinstance(value, dict):
        plain = _to_json(value)  # without enums and other subclasses
        return plain if plain is not None and _is_small(plain, max_bytes) else default
    if isinstance(value, tuple):
        return value if _is_small(value, max_bytes) else ()
    return value


def _is_small(value: object, max_bytes: int) -> bool:
    try:
        data = msgspec.json.encode(value)
    except _ENCODE_ERRORS:
        return False
    return len(data) <= max_bytes and not is_too_deep(data)
