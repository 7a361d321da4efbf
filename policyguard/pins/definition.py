"""A tool's definition: its parts, and their hashes.

Only what a model or a host acts on is a part: `_meta` and icons may differ from one list to the
next.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from policyguard.model.errors import PolicyguardError

MAX_DEFINITION_BYTES = 1024 * 1024
"""The largest definition that is read, as canonical JSON. Larger ones count as changed."""

_PARTS = {
    "title": ("title",),
    "description": ("description",),
    "inputSchema": ("inputSchema", "input_schema", "parameters"),
    "outputSchema": ("outputSchema", "output_schema"),
    "annotations": ("annotations",),
}
"""The parts, by MCP's names, and under which keys MCP and the APIs of models have them."""

_KEYS = frozenset(key for keys in _PARTS.values() for key in keys)
_KEYS_BY_CASE = {key.casefold(): key for key in sorted(_KEYS)}

PART_WORDS = {
    "title": "title",
    "description": "description",
    "inputSchema": "parameters",
    "outputSchema": "results",
    "annotations": "annotations",
}
"""The parts in messages."""


class DefinitionError(PolicyguardError):
    """A definition that cannot be read: too large, too deep, or not JSON."""


def read_parts(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a definition, of MCP or as it is sent to a model. None is no part.

    Raises `DefinitionError` for a key that is a part's but for its case.
    """
    inner = tool.get("function")
    described = inner if isinstance(inner, Mapping) else tool
    for key in described:
        if key not in _KEYS and key.casefold() in _KEYS_BY_CASE:
            known = _KEYS_BY_CASE[key.casefold()]
            raise DefinitionError(f"it has `{key:.40}`, which some take for `{known}`")
    found = {
        part: next((described[key] for key in keys if described.get(key) is not None), None)
        for part, keys in _PARTS.items()
    }
    return {part: value for part, value in found.items() if value is not None}


def hash_parts(parts: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of each part, in hex. Raises `DefinitionError`."""
    texts = {part: canonical_json(value) for part, value in parts.items()}
    size = sum(len(text.encode()) for text in texts.values())
    if size > MAX_DEFINITION_BYTES:
        raise DefinitionError(f"it has {size:,} bytes; at most {MAX_DEFINITION_BYTES:,} are read")
    return {part: hashlib.sha256(text.encode()).hexdigest() for part, text in texts.items()}


def hash_tool(hashes: Mapping[str, str]) -> str:
    """Return one hash of a tool, from those of its parts."""
    return hashlib.sha256(canonical_json(hashes).encode()).hexdigest()


def canonical_json(value: object) -> str:
    """Return a value as JSON of one form: keys sorted, no white space. Raises `DefinitionError`.

    Numbers keep their form: 1 is not 1.0. The text can be encoded as UTF-8.
    """
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        text.encode()
        return text
    except RecursionError:
        raise DefinitionError("it is nested too deep") from None
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"it is not JSON ({error})") from None


def iter_texts(value: object) -> Iterator[str]:
    """Yield every text in a value that JSON can hold, keys included."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            yield from (key for key in one if isinstance(key, str))
            pending += reversed([*one.values()])
        elif isinstance(one, list | tuple):
            pending += reversed(one)
