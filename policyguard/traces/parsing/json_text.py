"""JSON as agents really write it → Python values."""

from __future__ import annotations

import json

import msgspec

from policyguard.journal.json_depth import MAX_DEPTH, is_too_deep

_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"


class JsonError(ValueError):
    """Text that is no JSON; the message says where it breaks."""


def decode(text: bytes | str) -> object:
    """The value that a JSON text holds.

    Accepts two things that strict JSON does not have and recordings do: halves of surrogate
    pairs, left where a harness cut an emoji (they become `?`), and NaN or infinities, written by
    Python (they become None). Raises `JsonError`, also for what nests deeper than an event may.
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
        raise JsonError(
            f"broken JSON at {_error_position(error)}: {_error_reason(error)}"
        ) from None
    except UnicodeError:
        raise
    except ValueError:
        # Python refuses integers of thousands of digits, msgspec numbers beyond a double.
        raise JsonError("a number out of range") from None


def _error_position(error: json.JSONDecodeError) -> str:
    return (
        f"line {error.lineno}, column {error.colno}"
        if error.lineno > 1
        else f"column {error.colno}"
    )


def _error_reason(error: json.JSONDecodeError) -> str:
    """The decoder's own words, without the "at" that waits for its place."""
    text = error.msg.removesuffix(" at").removesuffix(" starting")
    return text[:1].lower() + text[1:]
