"""Decoding of JSON as agents write it."""

from __future__ import annotations

import json

import msgspec

from policyguard.journal.format import MAX_DEPTH, is_too_deep

_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"


class JsonError(ValueError):
    """Text that is not JSON; the message says where it breaks."""


def decode(text: bytes | str) -> object:
    """Decode a JSON text.

    Accept two deviations that recordings contain: halves of surrogate pairs, where a harness cut
    an emoji (they become `?`), and NaN or infinities written by Python (they become None). Raise
    `JsonError`, also for values nested deeper than an event may be.
    """
    try:
        value = _decode(text)
    except RecursionError:
        raise JsonError(_TOO_DEEP) from None
    except UnicodeError:
        raise JsonError("not UTF-8") from None
    if is_too_deep(text):
        raise JsonError(_TOO_DEEP)
    return value


def try_decode(text: str) -> object:
    """Decode a JSON text; return None if it is not JSON."""
    try:
        return decode(text)
    except JsonError:
        return None


def _decode(text: bytes | str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return _decode_leniently(text)


def _decode_leniently(text: bytes | str) -> object:
    try:
        value = json.loads(text, parse_constant=lambda _: None)
        clean = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return msgspec.json.decode(clean)
    except json.JSONDecodeError as error:
        raise JsonError(f"broken JSON at {_position(error)}: {_reason(error)}") from None
    except UnicodeError:
        raise
    except ValueError:
        # Python rejects integers of thousands of digits, msgspec numbers beyond a double.
        raise JsonError("a number out of range") from None


def _position(error: json.JSONDecodeError) -> str:
    line = f"line {error.lineno}, " if error.lineno > 1 else ""
    return f"{line}column {error.colno}"


def _reason(error: json.JSONDecodeError) -> str:
    """Return the decoder's message without the "at" before a position."""
    text = error.msg.removesuffix(" at").removesuffix(" starting")
    return text[:1].lower() + text[1:]
