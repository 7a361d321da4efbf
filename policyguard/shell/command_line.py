"""What a command line runs, as far as it can be known.

Words are texts in which four characters, which no shell word contains, stand for what is unknown.
"""

from __future__ import annotations

import msgspec

ANY = "\x00"
"""Any text within one word. A word that begins with it is no option."""
MANY = "\x01"
"""Any text, which may also begin or end words, and be an option."""
GLOB = "\x02"
"""What an unquoted `*`, `?` or `[…]` stands for: text without a slash."""
NAME = "\x05"
"""A name that a program printed, as `find` does: one word, no option, and no `+` or `:` first."""
MARKS = ANY + MANY + GLOB + NAME
START = "~\x06"
"""The folder in which a text starts, as `$PWD` gives it: what follows a slash is in it."""


PROGRAM_NOT_KNOWN = "program is not known"
"""A reason why a part of a text cannot be seen."""
HERE = ("",)
"""The folder in which a text starts."""


class Redirect(msgspec.Struct, frozen=True):
    """A file that a redirection reads or writes."""

    writes: bool
    target: str


class SimpleCommand(msgspec.Struct, frozen=True):
    """One program with its arguments.

    `path` is the program as written, `program` its last part. `sources` are the indices of commands
    whose output it reads or runs; `wrappers` the programs around it, outermost first. `guessed`:
    nothing says that the program before it runs it, but it may. `folders`: where it may run,
    relative to the folder in which the text starts, which is empty.
    """

    path: str
    program: str
    arguments: tuple[str, ...]
    redirects: tuple[Redirect, ...] = ()
    variables: tuple[str, ...] = ()
    sources: tuple[int, ...] = ()
    wrappers: tuple[str, ...] = ()
    guessed: bool = False
    folders: tuple[str, ...] = HERE


class CommandLine(msgspec.Struct, frozen=True):
    """All simple commands of a text, with those in wrappers, texts, substitutions and functions.

    `opaque` gives the reasons why a part cannot be seen. What is not seen may be anything: where
    that is so, one of the commands has `MANY` for a program.
    """

    commands: tuple[SimpleCommand, ...]
    opaque: tuple[str, ...] = ()


def is_written_out(command: SimpleCommand) -> bool:
    """Whether it can be seen which program runs: `*` and options are words of something else."""
    name = command.program
    return not name or (name[0] != "-" and command.path != MANY and bool(name.strip(MARKS)))


def blur(command: SimpleCommand) -> SimpleCommand:
    """Return a command of what may be prose: `$x` is hardly an option or file in it."""
    words = command.arguments
    if command.path != MANY:
        words = tuple(word.replace(MANY, NAME).replace(ANY, NAME) for word in words)
    return msgspec.structs.replace(command, arguments=words)


def run_by(runner: str, command: SimpleCommand, *, is_prose: bool = True) -> SimpleCommand:
    """Return a command that code names, or perhaps only speaks of."""
    around = (runner, *command.wrappers)
    return msgspec.structs.replace(blur(command) if is_prose else command, wrappers=around)
