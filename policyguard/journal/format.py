"""One event, one JSON line: the format of the journal, and policyguard's own trace format.

`schemas/event.schema.json` publishes it. A journal appends the chain fields (`chain`) to each line;
a trace has none. Both are read alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.journal.chain import CHAIN_FIELDS, parse_link
from policyguard.model.event import Admitted, Event, Refused
from policyguard.model.text import escape_surrogates

encode: Callable[[Event], bytes] = msgspec.json.Encoder().encode
"""Encode an event as one line of JSON, without line feed. Default values are omitted."""

MAX_DEPTH = 200
"""A decoder stops near 1000 levels, and code that walks the value has less stack left."""

_ALWAYS_SHALLOW_BYTES = 2 * MAX_DEPTH
"""A shorter text cannot close as many brackets as it would have to open."""

_OPENING, _CLOSING = b"[{", b"]}"
_STRUCTURE = lazy_pattern(rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"|[\[\]{}]', re.DOTALL)
"""Brackets, and strings, whose brackets do not count."""

_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep: flatten the arguments"

_ENCODE_ERRORS = (TypeError, ValueError, OverflowError, RecursionError)
"""The errors of encoders; UnicodeError is a ValueError."""


class LineError(ValueError):
    """A line is not an event; the message says why and what to do."""


class _ChainFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The chain fields of a line that another program has reformatted."""

    seq: int = 0
    chain: str = ""
    key_id: str = ""
    prev: str = ""
    masked: bool = False
    hash: str = ""


def decode(line: bytes | str) -> Event:
    """Decode the event of a line, with or without chain fields, which are not verified.

    Masked arguments become None. Raises `LineError` for anything that is not JSON or not an event,
    including unknown keys: a line that is half understood would be half replayed.
    """
    try:
        event = _decode(line.encode() if isinstance(line, str) else line)
    except RecursionError:
        raise LineError(_TOO_DEEP) from None
    except msgspec.ValidationError as error:
        raise LineError(f"{_lowercase_first(error)}; see schemas/event.schema.json") from None
    except (msgspec.DecodeError, UnicodeError) as error:  # the latter by msgspec before 0.23
        if isinstance(line, bytes) and not _is_utf8(line):
            raise LineError("not UTF-8: write the file as UTF-8") from None
        raise LineError(f"{_lowercase_first(error)}; one event is one line of JSON") from None
    if is_too_deep(line):
        raise LineError(_TOO_DEEP)
    return event


@cache
def _event_decoder() -> Callable[[bytes], Event]:
    """Create the decoder on first use: it takes a millisecond, and writers need none."""
    decode: Callable[[bytes], Event] = msgspec.json.Decoder(Event).decode
    return decode


def _decode(line: bytes) -> Event:
    link = parse_link(line)
    if link is not None:
        event = _event_decoder()(b"%b}" % line[: link.event_end])
        return _drop_masked_args(event) if link.masked else event
    try:
        event = _event_decoder()(line)
    except msgspec.ValidationError:
        rewritten = _decode_rewritten(line)
        if rewritten is None:
            raise
        return rewritten
    return event


def _decode_rewritten(line: bytes) -> Event | None:
    """Decode a journal line that another program has reformatted; return None for any other."""
    value = msgspec.json.decode(line)
    if not isinstance(value, dict) or not value.keys() >= {"seq", "hash"}:
        return None
    fields: dict[str, Any] = {name: value.pop(name) for name in CHAIN_FIELDS if name in value}
    masked = msgspec.convert(fields, _ChainFields).masked
    event: Event = msgspec.convert(value, Event)
    return _drop_masked_args(event) if masked else event


def _drop_masked_args(event: Event) -> Event:
    if isinstance(event, (Admitted, Refused)):
        return msgspec.structs.replace(event, args=None)
    return event


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeError:
        return False
    return True


def _lowercase_first(error: Exception) -> str:
    """Return the decoder's message in the style of ours."""
    text = str(error)
    return text if text.startswith("JSON") else text[:1].lower() + text[1:]


def is_too_deep(text: bytes | str) -> bool:
    """Return whether valid JSON nests more than `MAX_DEPTH` objects and lists."""
    if len(text) <= _ALWAYS_SHALLOW_BYTES:
        return False
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for token in _STRUCTURE.finditer(data):
        first = data[token.start()]
        if first in _OPENING:
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif first in _CLOSING:
            depth -= 1
    return False


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
    if size > max_bytes or (size > _ALWAYS_SHALLOW_BYTES and is_too_deep(line)):
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
    import json  # slow import

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
