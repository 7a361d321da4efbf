"""Whether a command line only looks."""

from __future__ import annotations

from functools import lru_cache

from policyguard.engines.regex import Regex
from policyguard.shell.command_line import MANY, SimpleCommand
from policyguard.shell.matching import ReadCommand
from policyguard.shell.reader import ShellReader
from policyguard.shell.words import is_static

_NOWHERE = frozenset(("/dev/null", "/dev/stderr", "/dev/stdout", "/dev/tty"))


def only_looks(text: str, reader: ShellReader) -> bool:
    """Whether each simple command of `text` certainly changes nothing.

    That is so for programs and subcommands of which the data says it (`looks`), without the options
    that make them change something, without redirections into files, and without assignments of
    variables other than neutral ones. A text that is opaque or has no command does not only look.
    """
    line = reader.read(text)
    if line.opaque or not line.commands:
        return False
    return all(_looks(command, reader) for command in line.commands)


def _looks(command: SimpleCommand, reader: ShellReader) -> bool:
    if any(redirect.writes and redirect.target not in _NOWHERE for redirect in command.redirects):
        return False
    if any(name not in reader.facts.neutral for name in command.variables):
        return False
    if not command.path:
        return True
    folder, slash, _ = command.path.rpartition("/")
    if not is_static(command.path) or (slash and folder not in reader.facts.folders):
        return False
    wrapper = reader.wrappers.find(command.program)
    if wrapper is not None and (wrapper.harmless or wrapper.looks):
        return True  # what it runs is a command of its own
    read = ReadCommand(command, reader.programs)
    program, arguments = read.program, read.arguments
    if MANY in "".join(command.arguments) and program.changes:
        return False
    for option in arguments.options:
        if any(_is_change(change, option.text, long=program.long) for change in program.changes):
            return False
    if any(word in program.changes for word in arguments.operands):
        return False
    script = arguments.operands[0] if arguments.operands else None
    if program.script and script is not None and not _compile(program.script).search(script):
        return False
    if isinstance(program.looks, bool):
        return program.looks
    subcommand = arguments.operands[0] if arguments.operands else ""
    return subcommand in program.looks


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Regex:
    return Regex(pattern)


def _is_change(change: str, option: str, *, long: bool) -> bool:
    if not is_static(option):
        return True
    if option == change or (option[:2] == "--" and change.startswith(option)):
        return True
    short = len(change) == 2 and change[0] == "-" and option[:2] != "--" and not long
    return short and change[1] in option[1:]
