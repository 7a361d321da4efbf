"""Read a call's shell command, strings and targets from its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ArgumentReader = Callable[[dict[str, Any]], Any]


def command_reader(names: tuple[str, ...]) -> ArgumentReader:
    """Return a reader of the shell command in these arguments; it joins a list of words.

    Several commands are one per line, in the order of `names`: only the server knows which it runs.
    """

    def derive(args: dict[str, Any]) -> str:
        found: list[str] = []
        for name in names:
            value = args.get(name)
            if isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value):
                value = " ".join(value)
            if isinstance(value, str) and value and not value.isspace():
                found.append(value)
        return "\n".join(found)

    return derive


def targets_reader(names: tuple[str, ...]) -> Callable[[dict[str, Any]], tuple[str, ...]]:
    """Return a reader of the strings in these arguments, the call's targets."""

    def derive(args: dict[str, Any]) -> tuple[str, ...]:
        found: list[str] = []
        for name in names:
            value = args.get(name)
            if isinstance(value, str):
                found.append(value)
            elif isinstance(value, (list, tuple)):
                found += [item for item in value if isinstance(item, str)]
        return tuple(found)

    return derive


def read_strings(args: dict[str, Any]) -> list[str]:
    """Return every string in the arguments, at any depth (bounded by the fingerprint)."""
    found: list[str] = []
    pending: list[Any] = [args]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            pending.extend(reversed(value.values()))
        elif isinstance(value, (list, tuple)):
            pending.extend(reversed(value))
    return found
