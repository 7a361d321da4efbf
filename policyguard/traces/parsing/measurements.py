"""Conversion of recorded times, tokens and costs; anything that is none counts as absent or 0."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from policyguard.traces.parsing.json_shape import as_amount, as_number, as_object

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST_SECOND = 2**63 // 1_000_000_000

_OPENAI_KEYS = ("prompt_tokens", "completion_tokens")
_ANTHROPIC_KEYS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)


def from_iso(value: object) -> int | None:
    """Convert ISO 8601 text, precise to the microsecond; a time without a zone is UTC."""
    if not isinstance(value, str):
        return None
    try:
        return from_datetime(datetime.fromisoformat(value))
    except (ValueError, OverflowError):
        return None


def from_datetime(time: datetime) -> int | None:
    """Convert a time; one without a zone is UTC. Raises `OverflowError` near year 1 or 9999."""
    elapsed = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    # Some formats write year 1 for a missing time.
    return elapsed // _MICROSECOND * 1000 if elapsed >= timedelta() else None


def from_seconds(value: object) -> int | None:
    """Convert seconds since 1970, precise to the microsecond."""
    seconds = as_number(value)
    if seconds is None or not 0 <= seconds < _LATEST_SECOND:
        return None
    return round(seconds * 1_000_000) * 1000


def from_milliseconds(value: object) -> int | None:
    """Convert milliseconds since 1970, precise to the microsecond."""
    milliseconds = as_amount(value)
    return None if milliseconds is None else from_seconds(milliseconds / 1000)


def count_tokens(usage: object) -> int:
    """Return all tokens of a reply: read, written and cached.

    OpenAI includes cached tokens in the prompt's, Anthropic counts them separately.
    """
    counts = as_object(usage)
    keys = _OPENAI_KEYS if any(key in counts for key in _OPENAI_KEYS) else _ANTHROPIC_KEYS
    return sum(int(as_amount(counts.get(key)) or 0) for key in keys)


def read_cost(value: object) -> float:
    """Return the cost, in the currency of the recording."""
    return float(as_amount(value) or 0)
