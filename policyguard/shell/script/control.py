"""Commands of the shell that say where it goes on, and whether: `cd`, `exit`, `break`, `set -e`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from policyguard.shell.builtins import FOLDER_COMMANDS, LEAVING
from policyguard.shell.command_line import ANY, HERE, NAME, START, SimpleCommand
from policyguard.shell.folders import (
    ANYWHERE,
    AT_FIRST,
    AT_START,
    UNREACHED,
    Folders,
    Place,
    Position,
    be_at,
    may_move,
    write_from_start,
)
from policyguard.shell.words import is_static

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements

_IN_PATH = re.compile(r"(?!/|\.\.?(?:/|\Z))")
"""A folder that `cd` looks for in those of CDPATH."""
_STATUS = re.compile(rf"\d+|{ANY}|{NAME}")
_OPTIONS = frozenset("abefhkmnptuvxoBCEHPT")

Loops = tuple[tuple[int, list[Position]], ...]
"""For each loop that runs, the shell that runs it, and where it may end early."""


_TAKEN_BACK = re.compile(rb"\bset\b[^\n;]*\+|\bshopt\b")
"""What may take `set -e` back, for what stands before it in a loop."""


class Control:
    """Where the shell of one reading is, and what it has said about going on."""

    stops: bool | None = False
    """Whether it ends where a command fails; None if that is no longer known."""
    _visited: Folders = HERE
    """All folders that it has been in."""
    ends_text = True
    """Whether a failure of what is read now ends the shell of the text, if `set -e` is on."""
    _later: tuple[range, ...] = ()
    """Commands that run at other times, as those of a trap."""
    _loops: Loops = ()
    """The loops that run in this shell."""

    def __init__(self, reading: Statements) -> None:
        self._reading = reading

    def find_folders(self) -> Folders:
        """Return the folders that a command may run in which begins."""
        return self.settle().folders or self._anywhere().folders

    def settle(self) -> Place:
        """Begin a command that runs whether or not the last one succeeded; return where."""
        place = self._reading.variables.settle()
        return ANYWHERE if self._reading.variables.drifts else place

    @property
    def is_moved(self) -> bool:
        """Whether the shell may be elsewhere than where the text starts."""
        variables = self._reading.variables
        return variables.drifts or variables.position is not AT_START

    @property
    def has_moved(self) -> bool:
        """Whether the shell has been elsewhere."""
        return self._visited is not HERE

    def write_from_start(self, text: str) -> str:
        """Return a command text in which `$PWD` of this text is a path, or else unknown."""
        is_elsewhere = self.is_moved or may_move(text)
        return text.replace(START, ANY) if is_elsewhere else write_from_start(text)

    def enter(self, folder: str, around: tuple[str, ...]) -> None:
        """Add what a program does before it runs another in this folder."""
        command = SimpleCommand("cd", "cd", (folder,), wrappers=around)
        self._reading.add(command)
        self.note(command)
        self._reading.variables.position = be_at(self._reading.variables.position.passed)

    def leave(self, place: Place = ANYWHERE) -> None:
        """Go on in a folder that is not known."""
        self._reading.variables.position = be_at(place)

    def note(self, command: SimpleCommand) -> None:
        """Follow a command of `CONTROLLING`."""
        program, variables = command.path, self._reading.variables
        if command.program in FOLDER_COMMANDS:
            here = self.settle()
            moved = here.move(command.program, command.arguments)
            if variables.is_assigned("CDPATH") and any(map(_IN_PATH.match, command.arguments)):
                moved = ANYWHERE
            is_certain = program in FOLDER_COMMANDS and self._reading.wrapped.is_builtin(program)
            variables.position = Position(moved, here) if is_certain else be_at(here.join(moved))
            variables.leave_folder()
            self._visited += moved.folders
        elif command.program == "enable":
            self._reading.wrapped.has_disabled = True
        elif program in ("set", "shopt"):
            self._note_option(command)
        elif program in LEAVING and self._leaves(command):
            if program in ("continue", "break"):
                for _, ends in self._loops:
                    ends.append(variables.position)
            variables.position = be_at(UNREACHED)

    def _leaves(self, command: SimpleCommand) -> bool:
        """Whether nothing behind a command is reached from it."""
        name, words = command.path, command.arguments
        if command.redirects or len(words) > 1 or not all(map(_STATUS.fullmatch, words)):
            return False  # `exit 1 2` and `exit --help` go on
        if not self._reading.wrapped.is_builtin(name):
            return False
        if name == "return":
            return self._reading.functions.is_own_text
        process = self._reading.variables.process
        return name == "exit" or any(one == process for one, _ in self._loops)

    def _note_option(self, command: SimpleCommand) -> None:
        changed = _find_errexit(command)
        if changed == "":
            return
        reading = self._reading
        is_certain = reading.replaces_values and not command.wrappers
        if self.stops is None or changed is None or not is_certain:
            self.stops = None
        else:
            self.stops = changed == "-" and reading.wrapped.is_builtin("set")

    def stop_on_failure(self) -> None:
        """Go on only where the simple command that has run did not fail, if `set -e` says so."""
        reading = self._reading
        if not (self.stops and self.ends_text) or reading.opaque or reading.functions.is_running:
            return
        if reading.is_certain or not _TAKEN_BACK.search(reading.source):
            reading.variables.position = Position(reading.variables.position.passed, UNREACHED)

    @contextmanager
    def loop(self) -> Iterator[list[Position]]:
        """Run the body of a loop; yield where it ends early, which is noted meanwhile."""
        ends = list[Position]()
        process = self._reading.variables.process
        outer, self._loops = self._loops, (*self._loops, (process, ends))
        try:
            yield ends
        finally:
            self._loops = outer
            variables = self._reading.variables
            for end in ends:
                variables.position = variables.position.join(end)

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Forget where a text leads that is read meanwhile: it may be prose."""
        variables = self._reading.variables
        position, drifts = variables.position, variables.drifts
        try:
            yield
        finally:
            variables.position, variables.drifts = position, drifts

    def leave_loops(self) -> Loops:
        """Begin what ends no loop around it, as a function or a subshell; return the loops."""
        loops, self._loops = self._loops, ()
        return loops

    def return_to(self, loops: Loops) -> None:
        """End what `leave_loops` began."""
        self._loops = loops

    def doubt(self) -> None:
        """Go on where it is not known what a command has changed."""
        variables = self._reading.variables
        variables.position = variables.position.join(be_at(ANYWHERE))

    def drift(self) -> None:
        """Note that parts of the text are not where the grammar has them."""
        self._reading.variables.drifts |= may_move(self._reading.source.decode())

    def run_anywhere(self) -> None:
        """Go on where the shell may be at any time."""
        self._reading.variables.position = be_at(self._anywhere())

    def _anywhere(self) -> Place:
        return AT_FIRST.join(Place(self._visited))

    def note_later(self, first: int, *, at_end: bool = False) -> None:
        """Note that the commands from an index on run at other times, perhaps at the end alone."""
        commands = self._reading.commands
        if not any(command.program in FOLDER_COMMANDS for command in commands[first:]):
            self._later += (range(first, len(commands)),)
        elif not at_end:
            self._reading.variables.drifts = True

    def finish(self) -> None:
        """Place the commands that run at other times, now that it is known where that may be."""
        if not self._later:
            return
        if self._reading.variables.has_surprises:
            self._reading.add_unknown("what a trap reads is changed later")
        commands, folders = self._reading.commands, self._anywhere().folders
        for index in {index for indices in self._later for index in indices}:
            commands[index] = msgspec.structs.replace(commands[index], folders=folders)


def _find_errexit(command: SimpleCommand) -> str | None:
    """Return `-` if the shell is to end where a command fails, `+` if not, None if unknown."""
    found, sign, is_name = "", "", False
    for word in command.arguments:
        if not is_static(word):
            return None
        if is_name and word[:1] in ("-", "+"):
            return None
        if is_name:
            is_name, found = False, sign if word == "errexit" else found
            continue
        sign, letters = word[:1], word[1:]
        if sign not in ("-", "+") or word in ("-", "--"):
            break
        if not _OPTIONS.issuperset(letters):
            return None
        is_name = letters.endswith("o")
        found = sign if "e" in letters else found
    if command.path == "shopt":
        return None if "errexit" in command.arguments or "-o" in command.arguments else ""
    return None if found and command.redirects else found
