"""What an object holds: its fields, its attributes, and what a standard value hides."""

from __future__ import annotations

import sys
from collections import ChainMap, defaultdict, deque
from collections.abc import Mapping
from datetime import datetime, time
from typing import Any

import msgspec

_PLAIN = (str, int, float, bool, type(None))
_KEYS = frozenset({int, float, bool, type(None)})
"""Keys that look as texts do in JSON."""
_FIELD_NAMES = (
    *("__pydantic_fields__", "model_fields", "__fields__"),  # pydantic, by version
    *("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__"),
)


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a model, dataclass, attrs class or struct; None for other objects.

    Read from the object, not by its own serializer, which may leave fields out.
    """
    kind = type(value)
    for attribute in _FIELD_NAMES:
        names = getattr(kind, attribute, None)
        if names is not None:
            break
    else:
        return None
    if attribute == "__attrs_attrs__":
        names = [field.name for field in names]
    more: dict[str, Any] = {}
    for attribute in ("__pydantic_private__", "__pydantic_extra__"):
        more.update(getattr(value, attribute, None) or {})
    return {**_values(value, names), **more, **attributes_of(value)}


def hidden_state(value: Any) -> dict[str, Any]:
    """Return what a value of a standard type or a subclass holds beside its content."""
    state: dict[str, Any] = {}
    kind = type(value)
    if isinstance(value, (datetime, time)) and value.fold:
        state["fold"] = value.fold
    if isinstance(value, defaultdict) and value.default_factory is not None:
        factory = value.default_factory
        state["default_factory"] = factory.__qualname__ if isinstance(factory, type) else factory
    if isinstance(value, (datetime, time)) and hasattr(value.tzinfo, "key"):
        state["zone"] = getattr(value.tzinfo, "key")  # noqa: B009 - only a `ZoneInfo` has one
    if isinstance(value, deque) and value.maxlen is not None:
        state["maxlen"] = value.maxlen
    if isinstance(value, ChainMap) and len(value.maps) > 1:
        state["maps"] = value.maps
    if isinstance(value, Mapping):
        kinds = {key_text(key): type(key).__name__ for key in value if type(key) in _KEYS}
        if kinds:
            state["keys"] = kinds
    return state if _is_standard(kind) else {**state, **attributes_of(value)}


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes that an object has by itself, also those in slots."""
    found = dict(getattr(value, "__dict__", ()))
    for kind in type(value).__mro__:
        slots = () if _is_standard(kind) else kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__"):
                if name.endswith("__"):
                    continue
                name = f"_{kind.__name__.lstrip('_')}{name}"
            if hasattr(value, name):
                found[name] = getattr(value, name)
    return found


def _is_standard(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in sys.stdlib_module_names


def _values(value: Any, names: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def key_text(key: Any) -> str:
    """Return the key of an object as a text."""
    return str(key) if isinstance(key, _PLAIN) else sort_key(key).decode()


def sort_key(value: Any) -> bytes:
    """Return a text that orders JSON-like values of any type."""
    return msgspec.json.encode(value, order="deterministic")
