"""Facts that the host gives of a session or a call: checked, kept as JSON, seen as their types.

Events and journals hold a time as text in RFC 3339; expressions see it as a timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from policyguard.cel import TIMESTAMP, Timestamp
from policyguard.cel.errors import OperationError
from policyguard.cel.plain import inward
from policyguard.cel.times import parse_timestamp
from policyguard.evaluator.evaluator import CheckTags
from policyguard.model.policy import Policy, Tag

_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "bool": (bool,),
}
_READ = ("double", "timestamp")
"""Types of which expressions see something else than what JSON may have for them."""
_WANTED = {"timestamp": "timestamp (RFC 3339 text, or a datetime with its zone)"}


def checker(policy: Policy) -> CheckTags:
    """The function that checks a policy's tags, and gives them as events hold them."""

    def check(given: dict[str, Any], *, overlay: bool = False) -> dict[str, Any]:
        tags = dict(given)
        wrong = []
        for name, tag in policy.tags.items():
            if name in tags:
                found = fitting(tags[name], tag)
                if found is None:
                    allowed = f", one of {', '.join(map(str, tag.one_of))}" if tag.one_of else ""
                    wanted = f"{_WANTED.get(tag.type, tag.type)}{allowed}"
                    wrong.append(f"tag `{name}` must be {wanted}, not {tags[name]!r:.60}")
                else:
                    tags[name] = _kept(found)
            elif not overlay:
                if tag.default is None:
                    wrong.append(f"tag `{name}` is required ({tag.type})")
                else:
                    tags[name] = _kept(read(tag.default, tag))
        if wrong:
            raise ValueError(f"policy `{policy.name}`: " + "; ".join(wrong))
        return tags

    return check


def seen(policy: Policy) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """The function that gives tags as expressions see them. What fits no type stays as it is."""
    typed = {name: tag for name, tag in policy.tags.items() if tag.type in _READ}

    def see(tags: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(tags)
        for name, tag in typed.items():
            if name in found and (value := read(found[name], tag)) is not None:
                found[name] = value
        return found

    return see


def read(value: Any, tag: Tag) -> Any:
    """A value of the tag's type, as expressions see it; None for what is none."""
    if tag.type == "list(string)":
        texts = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
        return list(value) if texts else None
    if tag.type == "timestamp":
        return _time(value)
    if isinstance(value, bool) and tag.type != "bool":
        return None
    if tag.type == "double":
        return _double(value)
    return value if isinstance(value, _PYTHON[tag.type]) else None


def fitting(value: Any, tag: Tag) -> Any:
    """The same where it is one of the values that the tag may have; else None."""
    found = read(value, tag)
    known = not tag.one_of or any(found == read(one, tag) for one in tag.one_of)
    return found if known else None


def _kept(found: Any) -> Any:
    """What was read, as JSON has it."""
    return str(found) if isinstance(found, Timestamp) else found


def _double(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, (float, int)) else None
    except OverflowError:
        return None


def _time(value: Any) -> Timestamp | None:
    try:
        if isinstance(value, str):
            return parse_timestamp(value)
        if isinstance(value, datetime) and value.utcoffset() is not None:
            moment: Timestamp = inward(value, TIMESTAMP)
            return moment
    except OperationError:
        pass
    return None
