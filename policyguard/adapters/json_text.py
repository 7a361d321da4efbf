r"""JSON as hosts write it: also half of a surrogate pair, and numbers that no float holds.

JavaScript writes `"\ud83d"` for an emoji that was cut in two, and msgspec takes no such text.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def decode(data: bytes | bytearray | memoryview | str, kind: type[T] | Any = Any) -> T | Any:
    """Decode a text as a value of a type. Raises `msgspec.DecodeError`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if kind is not Any and isinstance(error, msgspec.ValidationError):
            raise
        try:
            value = json.loads(data if isinstance(data, str) else bytes(data))
        except (ValueError, RecursionError):
            raise msgspec.DecodeError(str(error)) from None
        return msgspec.convert(value, kind)


def encode(value: Any) -> bytes:
    """Return a value as JSON, on one line."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError, ValueError, TypeError):
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()
