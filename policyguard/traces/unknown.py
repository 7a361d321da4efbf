"""A file that no importer recognises → what it looks like, and where the known formats stand."""

from __future__ import annotations

from policyguard.traces.shape import as_list
from policyguard.traces.source import Sample

_NONE = "no known trace format (see `policyguard traces --help`, docs/trace-formats.md)"
_KEYS = 5
_LONGEST_KEY = 40


def reason(sample: Sample) -> str:
    """The reason why the sample is not read, in one line: where to look, and what it is like."""
    return f"{_NONE}: {_shape(sample)}"


def _shape(sample: Sample) -> str:
    document = sample.document
    if isinstance(document, dict):
        return f"one JSON object{_keys(document)}"
    if document == []:
        return "an empty JSON list"
    rows = as_list(document) or sample.records
    each = next((row for row in rows if isinstance(row, dict)), None)
    form = "a JSON list" if isinstance(document, list) else "JSON lines"
    return f"{form} without an object" if each is None else f"{form} of objects{_keys(each)}"


def _keys(value: dict[str, object]) -> str:
    """The first keys; a key can be any text, and of a file that is no trace often is."""
    fit = [key for key in value if key.isprintable() and 0 < len(key) <= _LONGEST_KEY]
    shown = ", ".join(f"`{key}`" for key in fit[:_KEYS])
    return f" with {shown}{', …' if len(value) > _KEYS else ''}" if shown else ""
