"""What is read out of a call's arguments: its shell command, its strings, what it touches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ArgumentReader = Callable[[dict[str, Any]], Any]


def command_reader(names: tuple[str, ...]) -> ArgumentReader:
    """The shell command in these arguments; a list of words is joined by spaces.

    Which of several a tool runs, its server knows: they stand a line each, in the order of `names`.
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
    """The strings in these arguments: what the call touches."""

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
    """Every string value in the arguments, at any depth (which the fingerprint has bounded)."""
    found: list[str] = []
    waiting: list[Any] = [args]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, (list, tuple)):
            waiting.extend(reversed(value))
    return found
