"""The program words of a simple command, and which other commands have the same.

A prefix is for permissions, so in doubt a command does not have it: nothing may be unknown, chained
or run inside, and an option counts with the word behind it, which may be its value.
"""

from __future__ import annotations

import re

import msgspec

from policyguard.shell.command_line import SimpleCommand
from policyguard.shell.reader import ShellReader
from policyguard.shell.words import is_static

_MAX_SUBCOMMANDS = 2
"""How many words behind the program belong to the prefix: `docker compose up`."""
_SUBCOMMAND = re.compile(r"[A-Za-z][\w:-]*", re.ASCII)
_NOWHERE = frozenset(("/dev/null", "/dev/stderr", "/dev/stdout"))


class CommandPrefix(msgspec.Struct, frozen=True):
    """The first words of a command, and its options, each with the word behind it."""

    words: tuple[str, ...]
    options: tuple[str, ...]


def read_prefix(text: str, reader: ShellReader) -> CommandPrefix:
    """Return the prefix of a command. `ValueError` says why it has none."""
    command = _read_simple(text, reader)
    names: list[str] = []
    for word in command.arguments[:_MAX_SUBCOMMANDS]:
        if not _SUBCOMMAND.fullmatch(word):
            break
        names.append(word)
    words = (command.path, *names)
    return CommandPrefix(words, tuple(sorted(set(_pair_options(command.arguments, len(names))))))


def has_prefix(text: str, prefix: CommandPrefix, reader: ShellReader) -> bool:
    """Whether a command certainly begins with these words, and has no other options."""
    try:
        command = _read_simple(text, reader)
    except ValueError:
        return False
    count = len(prefix.words) - 1
    return (command.path, *command.arguments[:count]) == prefix.words and set(
        _pair_options(command.arguments, count)
    ).issubset(prefix.options)


def _pair_options(arguments: tuple[str, ...], first: int) -> list[str]:
    """Return each option with the word behind it, unless that is an option too."""
    pairs = []
    for index, word in enumerate(arguments[first:], first):
        if word[:1] in ("-", "+"):
            value = arguments[index + 1 : index + 2]
            is_alone = not value or value[0][:1] in ("-", "+")
            pairs.append(word if is_alone else f"{word} {value[0]}")
    return pairs


def _read_simple(text: str, reader: ShellReader) -> SimpleCommand:
    """Return the only command of a text. `ValueError` if it is not one plain program."""
    line = reader.read(text)
    if line.opaque:
        raise ValueError(f"what the command runs cannot be seen ({line.opaque[0]})")
    commands = [command for command in line.commands if not command.guessed]
    if len(commands) != 1:
        raise ValueError(f"the command runs {len(commands)} programs, not one")
    command = commands[0]
    if not command.path or command.variables:
        raise ValueError("the command sets variables")
    if not all(is_static(word) for word in (command.path, *command.arguments)):
        raise ValueError("the command has words that the shell replaces")
    if any(redirect.target not in _NOWHERE for redirect in command.redirects):
        raise ValueError("the command reads or writes files by redirection")
    if command.wrappers or reader.wrappers.find(command.program) is not None:
        raise ValueError(f"`{command.program}` runs other commands")
    if reader.code.find(command.program) is not None:
        raise ValueError(f"`{command.program}` runs code")
    if not reader.runs_as_written(command):
        raise ValueError(f"`{command.path}` is no program of the system")
    return command
