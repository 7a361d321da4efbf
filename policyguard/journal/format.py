"""One event, one JSON line: the format of the journal, and policyguard's own trace format.

`schemas/event.schema.json` describes the same line for everybody else. A journal adds to each
line its place in a chain (`chain`); a trace has none, and both are read alike.
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
"""One line of JSON in UTF-8, without the line's end. Fields at their defaults are left out."""

_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep: flatten the arguments"


class LineError(ValueError):
    """A line that is no event; the message says where and what to do about it."""


class _ChainFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a journal adds, where it does not stand as the journal itself writes it."""

    seq: int = 0
    chain: str = ""
    key_id: str = ""
    prev: str = ""
    masked: bool = False
    hash: str = ""


def decode(line: bytes | str) -> Event:
    """The event that a line holds, whether it stands in a chain or not; the chain is not checked.

    Arguments that a journal masked are None: what they were is not known. Raises `LineError` for
    what is no JSON, no event, has a key that the event does not have, or a value of another type:
    a line that is half understood would be half replayed.
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
    """Made when the first line is read: it takes a millisecond, and who writes needs none."""
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
    """The event of a journal's line that another program has written anew; None for any other."""
    value = msgspec.json.decode(line)
    if not isinstance(value, dict) or not value.keys() >= {"seq", "hash"}:
        return None
    added: dict[str, Any] = {name: value.pop(name) for name in CHAIN_FIELDS if name in value}
    masked = msgspec.convert(added, _ChainFields).masked
    event: Event = msgspec.convert(value, Event)
    return _drop_masked_args(event) if masked else event


def _drop_masked_args(event: Event) -> Event:
    if isinstance(event, (Admitted, Refused)):
        return msgspec.structs.replace(event, args=None)
    return event


def _lowercase_first(error: Exception) -> str:
    """The decoder's own words, in the style of our messages."""
    text = str(error)
    return text if text.startswith("JSON") else text[:1].lower() + text[1:]
