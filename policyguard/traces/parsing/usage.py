"""Recorded tokens and costs as amounts; anything else counts as 0."""

from __future__ import annotations

from policyguard.traces.parsing.json_shape import as_amount, as_object

_OPENAI_KEYS = ("prompt_tokens", "completion_tokens")
_ANTHROPIC_KEYS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)


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
