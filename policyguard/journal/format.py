"""One event, one JSON line: the format of the journal, and policyguard's own trace format.

`schemas/event.schema.json` publishes it. A journal appends the chain fields (`chain`) to each line;
a trace has none. Both are read alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from policyguard.journal.chain import CHAIN_FIELDS, parse_link
from policyguard.journal.json_depth import MAX_DEPTH, is_too_deep
from policyguard.model.event import Admitted, Event, Refused

encode: Callable[[Event], bytes] = msgspec.json.Encoder().encode
"""Encode an event as one line of JSON, without line feed. Default values are omitted."""

_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep: flatten the arguments"


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
    except UnicodeError:
        raise LineError("not UTF-8: write the file as UTF-8") from None
    except RecursionError:
        raise LineError(_TOO_DEEP) from None
    except msgspec.ValidationError as error:
        raise LineError(f"{_lowercase_first(error)}; see schemas/event.schema.json") from None
    except msgspec.DecodeError as error:
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


def _lowercase_first(error: Exception) -> str:
    """Return the decoder's message in the style of ours."""
    text = str(error)
    return text if text.startswith("JSON") else text[:1].lower() + text[1:]
