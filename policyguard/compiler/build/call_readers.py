"""Read a call's shell command, strings and targets from its arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

ArgumentReader = Callable[[dict[str, Any]], Any]

TARGETS_HINT = "name the arguments that hold targets: `classify: {targets: [path, paths]}`"
"""What to do if something needs targets, and the policy defines none."""


def command_reader(names: tuple[str, ...]) -> ArgumentReader:
    """Return a reader of the shell command in these arguments; it joins a list of words.

    Several commands are one per line, in the order of `names`: only the server knows which it runs.
    Numbers and nested lists are words too, since a tool may join them.
    """
    find_values = _argument_finder(names)

    def derive(args: dict[str, Any]) -> str:
        commands = (
            value if isinstance(value, str) else " ".join(_read_texts(value))
            for value in find_values(args)
        )
        return "\n".join(command for command in commands if command and not command.isspace())

    return derive


def targets_reader(names: tuple[str, ...]) -> Callable[[dict[str, Any]], tuple[str, ...]]:
    """Return a reader of the call's targets: the texts and numbers in these arguments.

    An object's targets are those in its own fields of these names, or all its values if it has
    none of them.
    """
    find_values = _argument_finder(names)

    def derive(args: dict[str, Any]) -> tuple[str, ...]:
        found: list[str] = []
        for value in find_values(args):
            if isinstance(value, str):
                found.append(value)
            elif value is not None:
                found += _read_texts(value, find_values)
        return tuple(found)

    return derive


def _argument_finder(names: tuple[str, ...]) -> Callable[[dict[str, Any]], list[Any]]:
    """Return a function that lists the values of arguments; `a.b` names a field of `a`."""
    paths = [(name, tuple(name.split("."))) for name in names]

    def find_values(args: dict[str, Any]) -> list[Any]:
        values = []
        for name, path in paths:
            if name in args:
                values.append(args[name])
            if len(path) > 1:
                values += _descend(args, path)
        return values

    return find_values


def _descend(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """Yield the values at a path of fields; a list on the way means each of its items."""
    if not path:
        yield value
    elif isinstance(value, dict):
        if path[0] in value:
            yield from _descend(value[path[0]], path[1:])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _descend(item, path)


def _read_texts(
    value: Any, find_values: Callable[[dict[str, Any]], list[Any]] | None = None
) -> list[str]:
    """Return the texts and numbers in a value, in order; of an object, those that are found."""
    leaves = _iter_leaves(value, find_values)
    return [
        leaf if isinstance(leaf, str) else json.dumps(leaf)
        for leaf in leaves
        if isinstance(leaf, (str, int, float))
    ]


def read_strings(args: dict[str, Any]) -> list[str]:
    """Return every string in the arguments, at any depth (bounded by the fingerprint)."""
    return [leaf for leaf in _iter_leaves(args) if isinstance(leaf, str)]


def _iter_leaves(
    value: Any, find_values: Callable[[dict[str, Any]], list[Any]] | None = None
) -> Iterator[Any]:
    """Yield all scalars in a value, in order.

    Of an object those in the values that `find_values` finds, or else in all of its values.
    """
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            named = find_values(item) if find_values is not None else []
            pending.extend(reversed(named or [*item.values()]))
        elif isinstance(item, (list, tuple)):
            pending.extend(reversed(item))
        else:
            yield item
