"""A command with its arguments read as its program does."""

from __future__ import annotations

from policyguard.model.shell import Program
from policyguard.shell.arguments import UNKNOWN_PROGRAM, Arguments, read_arguments
from policyguard.shell.command_line import SimpleCommand
from policyguard.shell.lookup import Lookup
from policyguard.shell.words import is_static

_MAX_SUBCOMMANDS = 3
"""How many words behind a program may be its subcommand: `docker compose rm`."""
Same = tuple[tuple[str, ...], ...]
"""Options that mean the same, in groups."""


class ReadCommand:
    """A command whose arguments are read once they are asked for."""

    __slots__ = ("_arguments", "_program", "_programs", "_same", "command", "is_known")

    def __init__(self, command: SimpleCommand, programs: Lookup[Program]) -> None:
        self.command = command
        self.is_known = is_static(command.path)
        """Whether the program is known."""
        self._programs = programs
        self._program: Program | None = None
        self._arguments: Arguments | None = None
        self._same: Same | None = None

    @property
    def program(self) -> Program:
        """What is known about the program."""
        if self._program is None:
            self._program = self._programs.find(self.command.program) or UNKNOWN_PROGRAM
        return self._program

    @property
    def arguments(self) -> Arguments:
        """Options and operands."""
        if self._arguments is None:
            self._arguments = read_arguments(self.command.arguments, self.program)
        return self._arguments

    @property
    def same(self) -> Same:
        """The options that mean the same to the program, and to its subcommand."""
        if self._same is None:
            program = self.program
            same = program.same
            for word, names in program.same_for.items():
                operands = self.arguments.operands[:_MAX_SUBCOMMANDS]
                if any(one == word or not is_static(one) for one in operands):
                    same += names
            self._same = same
        return self._same
