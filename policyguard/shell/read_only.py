"""Whether a command line changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.engines.regex import Regex
from policyguard.model.shell import Wrapper
from policyguard.shell.arguments import UNKNOWN_PROGRAM, read_arguments
from policyguard.shell.command_line import MANY, SimpleCommand
from policyguard.shell.plain import find_first_word
from policyguard.shell.reader import ShellReader
from policyguard.shell.words import is_static

_SHORT_OPTIONS = lazy_pattern(r"-[a-z]{1,4}")
_NOWHERE = frozenset(("/dev/null", "/dev/stderr", "/dev/stdout", "/dev/tty"))


def is_read_only(text: str, reader: ShellReader) -> bool:
    """Whether each simple command of `text` certainly changes nothing.

    That is so for programs and subcommands that the data calls `read_only`, without the options
    that make them change something, without redirections into files, and without assignments of
    variables other than neutral ones. A text that is opaque or empty is not read-only: what the
    call runs is elsewhere then.
    """
    first = find_first_word(text)
    if first and reader.wrappers.find(first) is None:
        program = reader.programs.find(first)
        if program is None or not program.read_only:
            return False
    answer = _answer_plain(text, reader)
    if answer is not None:
        return answer
    line = reader.read(text)
    if line.opaque or not text.strip():
        return False
    return all(_is_read_only(command, reader) for command in line.commands)


def _answer_plain(text: str, reader: ShellReader) -> bool | None:
    """Return the answer for a line of plain commands without wrappers, which takes no parser."""
    commands = reader.look_at(text).split()
    if commands is None:
        return None
    for command in commands:
        words = command.words
        program = words[0].rpartition("/")[2]
        wrapper = reader.wrappers.find(program)
        if wrapper is not None and (
            not wrapper.after or any(word in wrapper.after for word in words)
        ):
            return None
        if reader.code.find(program) is not None:
            return None
        simple = SimpleCommand(words[0], program, (*words[1:],), command.redirects)
        if not _is_read_only(simple, reader):
            return False
    return True


def _is_read_only(command: SimpleCommand, reader: ShellReader) -> bool:
    if any(redirect.writes and redirect.target not in _NOWHERE for redirect in command.redirects):
        return False
    if not reader.runs_as_written(command):
        return False
    if not command.path:
        return True
    wrapper = reader.wrappers.find(command.program)
    if wrapper is not None and (
        wrapper.harmless or wrapper.read_only or _only_runs_text(wrapper, command.arguments)
    ):
        return True  # what it runs is a command of its own
    program = reader.programs.find(command.program) or UNKNOWN_PROGRAM
    if not program.read_only:
        return False
    # Most answers take no reading of options.
    if program.read_only is True:
        if not (program.changes or program.script):
            return True
    elif _first_words(program.read_only).isdisjoint(("", *command.arguments)):
        return False
    arguments = read_arguments(command.arguments, program)
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
    if isinstance(program.read_only, bool):
        return program.read_only
    subcommand = arguments.operands[0] if arguments.operands else ""
    return subcommand in program.read_only or " ".join(arguments.operands[:2]) in program.read_only


def _only_runs_text(wrapper: Wrapper, arguments: Sequence[str]) -> bool:
    """Whether a shell is given a text to run and nothing else, as in `bash -lc 'ls -la'`."""
    return (
        wrapper.script
        and len(arguments) == 2
        and _SHORT_OPTIONS.fullmatch(arguments[0]) is not None
        and f"-{arguments[0][-1]}" in wrapper.text
    )


@lru_cache(maxsize=256)
def _first_words(subcommands: tuple[str, ...]) -> frozenset[str]:
    """Return the words of which a command has one if its subcommand is one of these."""
    return frozenset(name.partition(" ")[0] for name in subcommands)


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
