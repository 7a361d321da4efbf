"""Read a call's shell command, strings and targets from its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

ArgumentReader = Callable[[dict[str, Any]], Any]

TARGETS_HINT = "name the arguments that hold targets: `classify: {targets: [path, paths]}`"
"""What to do if something needs targets, and the policy defines none."""
_JSON_STARTS = ("{", "[")
_TEXT_OPTIONS = (["-c"], ["-lc"])
"""Behind these, the last word is a text for a shell, and no tool takes it apart."""


def command_reader(
    names: tuple[str, ...], word_lists: tuple[str, ...] = (), command_lists: tuple[str, ...] = ()
) -> ArgumentReader:
    """Return a reader of the shell command in these arguments.

    `word_lists` may hold words behind it, `command_lists` several commands. These are one per line,
    in the order of the names: only the server knows which it runs. So are the ways to run a list of
    words, in which numbers, nested lists and objects are words.
    """
    find_values = _argument_finder(names)
    find_lists = _argument_finder(command_lists)
    list_starts = (start for name in command_lists for start in _ends(tuple(name.split("."))))
    lists_of_words = frozenset((*word_lists, *list_starts))
    plain_names = frozenset(names) if not any("." in name for name in names) else frozenset()

    def derive(args: dict[str, Any]) -> str:
        named = plain_names.intersection(args)
        if len(named) == 1 and (len(args) == 1 or lists_of_words.isdisjoint(args)):
            (name,) = named
            text = args[name]
            if text.__class__ is str and text[:1].isalnum():
                return str(text)  # nearly all are: one text, and no JSON
        commands: list[str] = []
        for value in find_values(args):
            if not isinstance(value, str):
                commands += _read_word_list([*_read_texts(value)])
                continue
            commands.append(value)
            if (parsed := _parse_json(value)) is not None:
                commands += _read_word_list([*_read_texts(parsed)])
            for name in word_lists:
                if isinstance(args.get(name), list):  # `{command: rm, args: [-rf, x]}`
                    texts = _join_words([*_read_texts(args[name])])
                    commands += [f"{value} {text}" for text in texts if text]
        for value in find_lists(args):
            parsed = _parse_json(value) if isinstance(value, str) else value
            for item in parsed if isinstance(parsed, list) else [value]:
                texts = [*_read_texts(item)]
                commands += _join_words(texts) if isinstance(item, list) else texts
        return "\n".join(command for command in commands if command and not command.isspace())

    return derive


def _read_word_list(words: list[str]) -> Iterator[str]:
    """Yield the commands that a list of words may be.

    Most tools run it as it stands, so that `[bash, -c, "rm x"]` has three words; some join the
    words for a shell. If the first has spaces, it may be a list of commands.
    """
    as_it_stands, *joined = _join_words(words)
    yield as_it_stands
    if joined and words[-2:-1] not in _TEXT_OPTIONS:
        yield from joined
        if len(words[0].split()) > 1:
            yield from words


def _join_words(words: list[str]) -> list[str]:
    """Return the texts that words become: each a word, and joined for a shell if that differs."""
    import shlex  # few calls have such a list

    return list(dict.fromkeys((shlex.join(words), " ".join(words))))


def targets_reader(names: tuple[str, ...]) -> Callable[[dict[str, Any]], tuple[str, ...]]:
    """Return a reader of the call's targets: the texts and numbers in these arguments.

    An object's targets are those in its own fields of these names. If they hold none, they are its
    values and the keys that are not plain field names, such as paths.
    """
    find_values = _argument_finder(names)

    def derive(args: dict[str, Any]) -> tuple[str, ...]:
        found: list[str] = []
        for value in find_values(args):
            if isinstance(value, str):
                parsed = _parse_json(value)
                if parsed is None or "{" in value:  # of objects, not all texts are targets
                    found.append(value)
                value = parsed
            if value is not None:
                found += _read_texts(value, find_values)
        return tuple(found)

    return derive


def _argument_finder(names: tuple[str, ...]) -> Callable[[dict[str, Any]], list[Any]]:
    """Return a function that lists the values of arguments; `a.b` names a field of `a`."""
    paths = [(name, path := tuple(name.split(".")), _ends(path)) for name in names]

    def find_values(args: dict[str, Any]) -> list[Any]:
        values = []
        for name, path, starts in paths:
            if len(path) == 1:
                if name in args:
                    values.append(args[name])
            elif found := {key: args[key] for key in starts if key in args}:
                values += _descend(found, path)
        return values

    return find_values


def _ends(path: tuple[str, ...]) -> dict[str, int]:
    """Return the keys that may begin a path, with their lengths: `a` and `a.b`."""
    return {".".join(path[:length]): length for length in range(1, len(path) + 1)}


def _descend(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """Yield the values at a path of fields, in order.

    Lists and maps on the way stand for each of their items, text for the JSON in it. Text that
    begins like JSON and cannot be parsed is a value itself.
    """
    pending = [(value, path)]
    while pending:
        item, rest = pending.pop()
        if not rest:
            yield item
        elif isinstance(item, dict):
            pending.extend(reversed([*_read_map(item, rest)]))
        elif isinstance(item, (list, tuple)):
            pending.extend((one, rest) for one in reversed(item))
        elif isinstance(item, str) and item.lstrip().startswith(_JSON_STARTS):
            parsed = _parse_json(item)
            pending.append((item, ()) if parsed is None else (parsed, rest))


def _read_map(item: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield the values in which a path continues, and keys that are paths or name an object."""
    ends = _ends(path)
    for key, value in item.items():
        if key in ends:
            yield value, path[ends[key] :]
            continue
        parsed = _parse_json(value) if isinstance(value, str) else value
        is_container = isinstance(parsed, (dict, list, tuple))
        if "/" in key or "\\" in key or (is_container and not _is_plain(key)):
            yield key, ()
        if is_container:
            yield parsed, path


def _is_plain(key: str) -> bool:
    """Return whether a key is a field's name or an index."""
    return key.isidentifier() or key.isdecimal()


def _parse_json(text: str) -> Any:
    """Return the object or list that a text holds as JSON; None if it does not.

    An object with a repeated key is a list of objects, because parsers differ in which they take.
    """
    if not text.lstrip().startswith(_JSON_STARTS):
        return None
    import json  # slow import

    try:
        return json.loads(text, object_pairs_hook=_join_pairs)
    except (ValueError, RecursionError):
        return None


def _join_pairs(pairs: list[tuple[str, Any]]) -> Any:
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else [{key: value} for key, value in pairs]


def _read_texts(
    value: Any, find_values: Callable[[dict[str, Any]], list[Any]] | None = None
) -> list[str]:
    """Return the texts and numbers in a value, in order; of an object, those that are found."""
    has_text = _TextSearch().has_text

    def open_object(item: dict[str, Any]) -> list[Any]:
        if find_values is not None and any(map(has_text, named := find_values(item))):
            return named
        return _open_map(item, has_text)

    return [
        leaf if isinstance(leaf, str) else _number_text(leaf)
        for leaf in _iter_leaves(value, open_object)
        if isinstance(leaf, (str, int, float))
    ]


def _number_text(number: float) -> str:
    """Return a number as JSON has it."""
    return int.__repr__(number) if type(number) is int else _to_json(number)


def _to_json(value: object) -> str:
    import json  # slow import

    return json.dumps(value)


def _open_map(item: dict[str, Any], has_text: Callable[[Any], bool]) -> list[Any]:
    """Return an object's values, and the keys that are not plain field names.

    `{"/etc/passwd": …}` maps a path, `{name: …}` is a record. The keys of an object without texts
    are its texts. A flag (true, false) is none.
    """
    if not any(not isinstance(value, bool) and has_text(value) for value in item.values()):
        return [*item]
    parts: list[Any] = []
    for key, value in item.items():
        if not key.isidentifier():
            parts.append(key)
        if not isinstance(value, bool):
            parts.append(value)
    return parts


class _TextSearch:
    """Tells which values have texts; the lists and objects of one value are read once."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, bool]] = {}

    def has_text(self, value: Any) -> bool:
        """Return whether a value or its keys hold a number, or a text that is not blank."""
        if not isinstance(value, (dict, list, tuple)):
            return value is not None and not (isinstance(value, str) and not value.strip())
        found = self._found
        if id(value) not in found:
            for item in reversed(self._unread_containers(value)):
                parts = (*item, *item.values()) if isinstance(item, dict) else item
                # With the item itself, so that no other object gets its id.
                found[id(item)] = (
                    item,
                    any(
                        found[id(part)][1]
                        if isinstance(part, (dict, list, tuple))
                        else part is not None and not (isinstance(part, str) and not part.strip())
                        for part in parts
                    ),
                )
        return found[id(value)][1]

    def _unread_containers(self, value: Any) -> list[Any]:
        """Return the lists and objects in a value, each after those it is in."""
        containers = [value]
        for item in containers:  # grows meanwhile
            containers += [
                part
                for part in (item.values() if isinstance(item, dict) else item)
                if isinstance(part, (dict, list, tuple)) and id(part) not in self._found
            ]
        return containers


def read_strings(args: dict[str, Any]) -> list[str]:
    """Return every string in the arguments, at any depth (bounded by the fingerprint).

    Among them are the keys that are not plain field names, such as paths.
    """
    return [leaf for leaf in _iter_leaves(args, _list_strings) if isinstance(leaf, str)]


def read_text(args: dict[str, Any]) -> str:
    """Return all arguments as one text: a line `key: value` for each scalar, `key:` for others."""
    lines: list[str] = []
    pending: list[tuple[str, Any]] = [(key, value) for key, value in reversed(args.items())]
    while pending:
        key, value = pending.pop()
        if isinstance(value, dict):
            lines.append(f"{key}:")
            pending.extend((str(name), item) for name, item in reversed(value.items()))
        elif isinstance(value, (list, tuple)):
            lines.append(f"{key}:")
            pending.extend(("-", item) for item in reversed(value))
        else:
            lines.append(f"{key}: {value if isinstance(value, str) else _to_json(value)}")
    return "\n".join(lines)


def _list_strings(item: dict[str, Any]) -> list[Any]:
    """Return an object's values, after the keys that are not plain field names."""
    return [*(key for key in item if not key.isidentifier()), *item.values()]


def _iter_leaves(value: Any, open_object: Callable[[dict[str, Any]], list[Any]]) -> Iterator[Any]:
    """Yield all scalars in a value, in order; those of an object in what `open_object` returns.

    Not by recursion, because the depth of arguments is bounded by the policy alone.
    """
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending.extend(reversed(open_object(item)))
        elif isinstance(item, (list, tuple)):
            pending.extend(reversed(item))
        else:
            yield item
