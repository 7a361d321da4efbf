"""Description of a file that no importer recognizes."""

from __future__ import annotations

from policyguard.traces.containers.source import Sample
from policyguard.traces.parsing.json_shape import as_list

_UNKNOWN_FORMAT = "unknown trace format (see `policyguard traces --help`, docs/trace-formats.md)"
_MAX_KEYS = 5
_MAX_KEY_LENGTH = 40


def describe(sample: Sample) -> str:
    """Return in one line what the file looks like and where the formats are documented."""
    return f"{_UNKNOWN_FORMAT}: {_describe_shape(sample)}"


def _describe_shape(sample: Sample) -> str:
    document = sample.document
    if isinstance(document, dict):
        return f"one JSON object{_list_keys(document)}"
    if document == []:
        return "an empty JSON list"
    rows = as_list(document) or sample.records
    first = next((row for row in rows if isinstance(row, dict)), None)
    form = "a JSON list" if isinstance(document, list) else "JSON lines"
    return f"{form} without an object" if first is None else f"{form} of objects{_list_keys(first)}"


def _list_keys(value: dict[str, object]) -> str:
    """List the first keys; a key of an unknown file can be any text."""
    printable = [key for key in value if key.isprintable() and 0 < len(key) <= _MAX_KEY_LENGTH]
    shown = ", ".join(f"`{key}`" for key in printable[:_MAX_KEYS])
    return f" with {shown}{', …' if len(value) > _MAX_KEYS else ''}" if shown else ""
