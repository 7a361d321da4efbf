"""Files that commands read and write, by their arguments and redirections."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.model.shell import Program
from policyguard.shell.arguments import Arguments
from policyguard.shell.command_line import MANY, SimpleCommand
from policyguard.shell.words import is_static

_VALUE = lazy_pattern(r"^[\w-]*=(?=.)")


def normalize(path: str) -> str:
    """Return `path` without `.`, `..` and doubled slashes."""
    if path[:2] == "./" and not is_static(path):
        return "./" + normalize(path[2:])  # what is unknown in it is below the current folder
    if path[:2] == "//":
        path = "/" + path.lstrip("/")
    return posixpath.normpath(path) if "/" in path and "://" not in path else path


def find_written(command: SimpleCommand, program: Program, arguments: Arguments) -> Iterator[str]:
    """Yield the files that a command writes."""
    for redirect in command.redirects:
        if redirect.writes:
            yield normalize(redirect.target)
    for kind in program.writes:
        if kind == "operands":
            yield from map(normalize, arguments.operands)
        elif kind == "last":
            yield from map(normalize, arguments.operands[-1:])
        elif kind.startswith("-"):
            for option in arguments.options:
                if option.value is not None and _is_flag(kind, option.text):
                    yield normalize(option.value)
        else:
            for word in arguments.operands:
                if word.startswith(kind):
                    yield normalize(word[len(kind) :])
    if program.saves and not any(item.text in program.writes for item in arguments.options):
        for word in arguments.operands:
            yield word.partition("?")[0].rpartition("/")[2]
    if command.path == MANY:
        yield MANY


def _is_flag(flag: str, text: str) -> bool:
    return text == flag or (len(flag) == 2 and text[:2] != "--" and flag[1] in text[1:])


def find_read(command: SimpleCommand, program: Program, arguments: Arguments) -> Iterator[str]:
    """Yield the files that a command may read."""
    for redirect in command.redirects:
        if not redirect.writes:
            yield normalize(redirect.target)
    if command.path == MANY:
        yield MANY
    if program.reads == "none":
        return
    operands = arguments.operands[1:] if program.reads == "rest" else arguments.operands
    for word in operands:
        yield normalize(_VALUE.sub("", word).lstrip("@<"))
    if program.reads is None:
        for option in arguments.options:
            if option.value is not None:
                yield normalize(_VALUE.sub("", option.value).lstrip("@<"))
