"""Check tags, store them as JSON, and convert them for expressions.

Events and journals hold a time as text in RFC 3339; expressions see it as a timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from policyguard.cel import TIMESTAMP, Timestamp
from policyguard.cel.errors import OperationError
from policyguard.cel.types.times import parse_timestamp
from policyguard.evaluator.activation import CheckTags
from policyguard.model.policy import Policy, Tag

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "int": (int,), "bool": (bool,)}
_CONVERTED_TYPES = ("double", "timestamp")
"""Types whose values expressions see in another form than JSON."""
_TYPE_LABELS = {"timestamp": "timestamp (RFC 3339 text, or a datetime with its zone)"}


def build_tag_checker(policy: Policy) -> CheckTags:
    """Return a function that checks tags and converts them to JSON for events."""

    def check(given: dict[str, Any], *, overlay: bool = False) -> dict[str, Any]:
        tags = dict(given)
        errors = []
        for name, tag in policy.tags.items():
            if name in tags:
                found = convert_allowed_tag(tags[name], tag)
                if found is None:
                    allowed = f", one of {', '.join(map(str, tag.one_of))}" if tag.one_of else ""
                    expected = f"{_TYPE_LABELS.get(tag.type, tag.type)}{allowed}"
                    errors.append(f"tag `{name}` must be {expected}, not {tags[name]!r:.60}")
                else:
                    tags[name] = _to_json(found)
            elif not overlay:
                if tag.default is None:
                    errors.append(f"tag `{name}` is required ({tag.type})")
                else:
                    tags[name] = _to_json(convert_tag(tag.default, tag))
        if errors:
            raise ValueError(f"policy `{policy.name}`: " + "; ".join(errors))
        return tags

    return check


def build_tag_converter(policy: Policy) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that converts tags for expressions; invalid values stay unchanged."""
    typed = {name: tag for name, tag in policy.tags.items() if tag.type in _CONVERTED_TYPES}

    def convert(tags: Mapping[str, Any]) -> dict[str, Any]:
        converted = dict(tags)
        for name, tag in typed.items():
            if name in converted and (value := convert_tag(converted[name], tag)) is not None:
                converted[name] = value
        return converted

    return convert


def convert_tag(value: Any, tag: Tag) -> Any:
    """Convert a value to the tag's type for expressions; None if it is invalid."""
    if tag.type == "list(string)":
        texts = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
        return list(value) if texts else None
    if tag.type == "timestamp":
        return _to_timestamp(value)
    if isinstance(value, bool) and tag.type != "bool":
        return None
    if tag.type == "double":
        return _to_double(value)
    return value if isinstance(value, _PYTHON_TYPES[tag.type]) else None


def convert_allowed_tag(value: Any, tag: Tag) -> Any:
    """Convert a value as `convert_tag` does; None if `one_of` excludes it."""
    found = convert_tag(value, tag)
    is_allowed = not tag.one_of or any(found == convert_tag(allowed, tag) for allowed in tag.one_of)
    return found if is_allowed else None


def _to_json(found: Any) -> Any:
    """Return a converted value as JSON."""
    return str(found) if isinstance(found, Timestamp) else found


def _to_double(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, (float, int)) else None
    except OverflowError:
        return None


def _to_timestamp(value: Any) -> Timestamp | None:
    try:
        if isinstance(value, str):
            return parse_timestamp(value)
        if isinstance(value, datetime) and value.utcoffset() is not None:
            from policyguard.cel.interop import to_cel  # slow import

            moment: Timestamp = to_cel(value, TIMESTAMP)
            return moment
    except OperationError:
        pass
    return None
