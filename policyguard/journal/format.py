"""One event, one JSON line: the format of the journal, and policyguard's own trace format.

`schemas/event.schema.json` describes the same line for everybody else.
"""

from __future__ import annotations

import msgspec

from policyguard.journal.nesting import DEEPEST, nests_too_deeply
from policyguard.model.event import Event

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)

_TOO_DEEP = f"nested more than {DEEPEST} levels deep: flatten the arguments"


class LineError(ValueError):
    """A line that is no event; the message says where and what to do about it."""


def encode(event: Event) -> bytes:
    """One line of JSON in UTF-8, without the line's end. Fields at their defaults are left out."""
    return _encoder.encode(event)


def decode(line: bytes | str) -> Event:
    """The event that a line holds.

    Raises `LineError` for what is no JSON, no event, has a key that the event does not have, or a
    value of another type: a line that is half understood would be half replayed.
    """
    try:
        event: Event = _decoder.decode(line)
    except UnicodeError:
        raise LineError("not UTF-8: write the file as UTF-8") from None
    except RecursionError:
        raise LineError(_TOO_DEEP) from None
    except msgspec.ValidationError as error:
        raise LineError(f"{_lowered(error)}; see schemas/event.schema.json") from None
    except msgspec.DecodeError as error:
        raise LineError(f"{_lowered(error)}; one event is one line of JSON") from None
    if nests_too_deeply(line):
        raise LineError(_TOO_DEEP)
    return event


def _lowered(error: Exception) -> str:
    """The decoder's own words, in the style of our messages."""
    text = str(error)
    return text if text.startswith("JSON") else text[:1].lower() + text[1:]
