"""The calls of the benchmarks: each has its own arguments, and each failure its own text.

Only the standard library is used: peers make the same calls in their own environments.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_ERRORS = (
    "Error: customer {} not found",
    "ENOENT: no such file or directory, open '{}'",
    "HTTP 503 Service Unavailable while asking for {}",
    "SyntaxError: unexpected token in {}",
    "{}: the command timed out",
    "it did not work out with {}",
)
_WORDS = ("alder", "birch", "cedar", "dogwood", "elm", "fir", "ginkgo", "hazel", "ivy", "juniper")
_LETTERS = "bcdfghjklmnpqrstvwxz"


class Call(NamedTuple):
    """A tool call and its outcome: `error` if it failed, else `result`."""

    tool: str
    args: dict[str, Any]
    result: str
    error: str | None


def call(number: int, failing: int = 0) -> Call:
    """Return a search with three small arguments; `failing` of 100 fail."""
    return _make_call(number, "search", _search(number), failing)


def mixed_call(number: int, failing: int = 0) -> Call:
    """Return a call of a coding agent: read, search, edit, run, fetch, in turn."""
    word = name(number)
    args: dict[str, Any]
    match number % 5:
        case 0:
            tool, args = "read_file", {"path": f"src/{word}.py", "offset": number % 500}
        case 1:
            tool, args = "search", _search(number)
        case 2:
            tool = "edit_file"
            args = {"path": f"src/{word}.py", "old_string": f"x = {number}", "new_string": "x = 0"}
        case 3:
            tool, args = "bash", {"command": f"cat src/{word}.py | head -n {number % 90}"}
        case _:
            tool, args = "fetch", {"url": f"https://{word}.example/{number}", "method": "GET"}
    return _make_call(number, tool, args, failing)


def nested_call(number: int, failing: int = 0) -> Call:
    """Return the search of `call` with two of its arguments in an object."""
    query, *rest = _search(number).items()
    return _make_call(number, "search", dict([query, ("page", dict(rest))]), failing)


TEXT_CHARACTERS = 20_000
_TEXT = ("lorem ipsum dolor sit amet, consectetur\n" * (TEXT_CHARACTERS // 40))[:TEXT_CHARACTERS]


def large_call(number: int, failing: int = 0) -> Call:
    """Return a search with a text of 20 kB."""
    args = {**_search(number), "text": f"{name(number)} {_TEXT}"}
    return _make_call(number, "search", args, failing)


def nested_large_call(number: int, failing: int = 0) -> Call:
    """Return a search with a text of 20 kB in an object."""
    args = {"page": {**_search(number), "text": f"{name(number)} {_TEXT}"}}
    return _make_call(number, "search", args, failing)


def name(number: int) -> str:
    """Return a name without digits, because signatures ignore numbers in errors."""
    letters = ""
    number += 1000
    while number:
        number, letter = divmod(number, len(_LETTERS))
        letters += _LETTERS[letter]
    return letters


def _search(number: int) -> dict[str, Any]:
    words = _WORDS[number % 10], _WORDS[number // 10 % 10]
    return {"query": f"{words[0]} {words[1]} {name(number)}", "limit": 10, "page": number}


def _make_call(number: int, tool: str, args: dict[str, Any], failing: int) -> Call:
    # Spread evenly over each hundred.
    fails = (number + 1) * failing // 100 > number * failing // 100
    error = _ERRORS[number % len(_ERRORS)].format(name(number)) if fails else None
    return Call(tool, args, f"found {number} of them, the first in {name(number)}", error)


def repeated_failure(number: int, failing: int = 0) -> Call:
    """Return, every other time, a call that failed before and is refused."""
    if number % 2:
        return Call("search", {"query": "the same", "limit": 10, "page": 0}, "", "user not found")
    return call(number, failing)
