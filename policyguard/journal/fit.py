"""Events that a line can hold: whatever a caller passed, what is written can be read again."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from policyguard.journal.format import encode
from policyguard.journal.nesting import SHALLOW, nests_too_deeply
from policyguard.model.event import Event, Refused
from policyguard.store.text import well_formed

_UNFIT = (TypeError, ValueError, OverflowError, RecursionError)
"""What an encoder raises: UnicodeError is a ValueError, JSON knows no objects and no cycles."""


def fitted(event: Event, largest: int) -> tuple[bytes, bool]:
    """An event's JSON; and whether something of it had to be left out.

    `largest` bounds each field: bytes of an object, characters of a text. Arguments that are not
    JSON, too large or nested too deep become None, such metadata and tags empty; longer texts are
    cut, and halves of surrogate pairs written as escapes.
    """
    try:
        line = encode(event)
    except _UNFIT:
        return _cut(event, largest)
    size = len(line)
    if size > largest or (size > SHALLOW and nests_too_deeply(line)):
        return _cut(event, largest)
    if event.__class__ is Refused and not event.fingerprint and _as_json(event.args) is None:
        return _cut(event, largest)  # arguments that were not judged may be NaN
    return line, False


def _cut(event: Event, largest: int) -> tuple[bytes, bool]:
    """The same, field by field."""
    reduced = {
        name: _reduced(getattr(event, name), largest, absent=None if name == "args" else {})
        for name in event.__struct_fields__
    }
    cut = msgspec.structs.replace(event, **reduced)
    return encode(cut), cut != event


def _as_json(value: object) -> Any:
    """A value of plain types, as JSON can hold it; None for what it cannot: NaN, as one."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except _UNFIT:
        return None


def _reduced(value: Any, largest: int, *, absent: object) -> Any:
    if isinstance(value, str):
        text = value if value.isascii() else well_formed(value)
        if len(text) > largest:
            return f"{text[:largest]}… [{len(text) - largest} characters left out]"
        return value if text == value else text
    if isinstance(value, dict):
        plain = _as_json(value)  # enums and other subclasses of text and numbers are none
        return plain if plain is not None and _is_small(plain, largest) else absent
    if isinstance(value, tuple):
        return value if _is_small(value, largest) else ()
    return value


def _is_small(value: object, largest: int) -> bool:
    try:
        data = msgspec.json.encode(value)
    except _UNFIT:
        return False
    return len(data) <= largest and not nests_too_deeply(data)
