"""One command text, for all pattern sets that are held against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from policyguard.shell.builtins import FOLDER_COMMANDS
from policyguard.shell.command_line import CommandLine
from policyguard.shell.plain import PlainCommand, split_plain
from policyguard.shell.read_command import ReadCommand

if TYPE_CHECKING:
    from policyguard.shell.reader import ShellReader


class LoneCommands(msgspec.Struct, frozen=True):
    """Plain commands of which none runs another."""

    by_program: dict[str, list[PlainCommand]]
    moves: bool
    """Whether one changes the folder."""


class CommandText:
    """What is asked of a text; each answer is found once. Safe to share between threads."""

    def __init__(self, text: str, reader: ShellReader) -> None:
        self.text = text
        self._reader = reader
        self._plain: list[PlainCommand] | None = None
        self._lone: LoneCommands | None = None
        self._has_plain = self._has_lone = False  # whether the two above are known
        self._commands: list[ReadCommand] | None = None

    def split(self) -> list[PlainCommand] | None:
        """Return its commands; None if it takes a parser to split them."""
        if not self._has_plain:
            self._plain = split_plain(self.text)
            self._has_plain = True
        return self._plain

    def find_lone(self) -> LoneCommands | None:
        """Return its commands, if it is plain and none runs another; else `read_commands`."""
        if not self._has_lone:
            self._lone = _find_lone(self.split(), self._reader)
            self._has_lone = True
        return self._lone

    def read(self) -> CommandLine:
        """Return all that it runs, which the reader keeps."""
        return self._reader.read(self.text)

    def read_commands(self) -> list[ReadCommand]:
        """Return all that it runs, with arguments."""
        if self._commands is None:
            programs = self._reader.programs
            self._commands = [ReadCommand(command, programs) for command in self.read().commands]
        return self._commands

    def find_programs(self) -> frozenset[str] | None:
        """Return the programs that it runs; None if one is not known."""
        commands = self.read_commands()
        if not all(read.is_known for read in commands):
            return None
        return frozenset([read.command.program for read in commands])


def _find_lone(plain: list[PlainCommand] | None, reader: ShellReader) -> LoneCommands | None:
    bounds = reader.facts.bounds
    if plain is None or len(plain) >= bounds.commands:
        return None
    found: dict[str, list[PlainCommand]] = {}
    named: set[str] = set()
    for command in plain:
        path, *arguments = command.words
        if path in named or not reader.runs_no_other(path, arguments):
            return None  # it may be a file that a command before it has written
        if path in reader.input_programs and (command.is_piped or not named.isdisjoint(arguments)):
            return None
        if len(arguments) >= bounds.words:
            return None
        named.update(arguments, command.files)
        found.setdefault(path, []).append(command)
    return LoneCommands(found, not FOLDER_COMMANDS.isdisjoint(found))
