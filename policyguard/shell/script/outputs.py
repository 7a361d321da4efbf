"""What commands print, as far as it is known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from string import digits
from typing import TYPE_CHECKING

from policyguard.model.shell import Program
from policyguard.shell.arguments import UNKNOWN_PROGRAM, read_arguments
from policyguard.shell.command_line import ANY, MANY, NAME, START, SimpleCommand
from policyguard.shell.expansion import change
from policyguard.shell.files import find_operands
from policyguard.shell.script.found_names import find_names_of
from policyguard.shell.script.inputs import Input
from policyguard.shell.script.variables.lines_read import split_line
from policyguard.shell.words import is_static

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements

_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_ECHO_ESCAPE = re.compile(r"\\[abcefnrtv0\\]")  # which some shells read without `-e`
_MADE_IN_TMP = frozenset(("-d", "-q", "-dq", "-qd", "--directory", "--quiet"))
"""Options with which mktemp makes a file or folder in `$TMPDIR`, mostly `/tmp`."""
_TEMPLATE = re.compile(r"X{3,}(?=[^/]*\Z)")
"""What mktemp replaces in a template, so that no such file existed."""
_FINDING_PROGRAMS = frozenset((("which",), ("command", "-v"), ("type", "-P")))
"""Programs that print the path of another."""
_RESOLVING = frozenset((("realpath",), ("readlink", "-f"), ("readlink", "-e")))
"""Programs that print a path without its links."""
_ELSEWHERE = re.compile(rf"\A[/~]|(?:\A|/)\.\.(?:/|\Z)|[{ANY}{MANY}]")
"""A path that may lead out of the current folder."""
_OPTIONS_OF_READ: tuple[list[str], ...] = (
    [],
    ["-r"],
    ["-d", ""],
    ["-r", "-d", ""],
    ["-d", "", "-r"],
    ["-rd", ""],
)
"""Options of `read` with which it reads lines, or all up to a null character."""
_ALL_OF_LS = ("-a", "-f", "--all")
"""Options with which ls names `..`, too."""
_ESCAPED = {"n": "\n", "t": "\t", "\\": "\\"}


class Outputs:
    """What the commands of one reading print.

    `inputs` holds the texts that commands read, by index. Functions may print anything.
    """

    def __init__(self, reading: Statements) -> None:
        self._reading = reading
        self.inputs: dict[int, str] = {}

    def static_output(self, indices: Sequence[int]) -> str | None:
        """Return what the commands print, if it is known."""
        index, *others = indices or (-1,)
        if others or index < 0:
            return None
        command = self._reading.commands[index]
        if command.program in self._reading.functions:
            return None
        arguments = command.arguments
        if command.program == "echo":
            flags = 0
            while flags < len(arguments) and re.fullmatch(r"-[neE]+", arguments[flags]):
                flags += 1
            text = " ".join(arguments[flags:]) + "\n"
            if "e" in "".join(arguments[:flags]):
                return _unescape(text)
            return None if _ECHO_ESCAPE.search(text) else text
        if command.program == "printf" and arguments:
            form, words = arguments[0], arguments[1:]
            if form in ("%s", "%s\\n") or (
                form in ("%b", "%b\\n") and not any("\\" in word for word in words)
            ):
                return ("\n" if "n" in form else "").join(words)
            return None if words or "%" in form else _unescape(form)
        if command.path == "pwd" and not arguments:
            return f"{self._reading.variables.find_here()}\n"
        if arguments and arguments[0][:1] != "-" and command.path in ("basename", "dirname"):
            return _name_part_of(command.path, *arguments)
        if (command.path, *arguments[:-1]) in _RESOLVING:
            here = self._reading.variables.find_here()
            return f"{here if arguments[-1] in ('.', START) else ANY}\n"
        if command.path == "mktemp":
            made = None if self._assigns("TMPDIR") else _name_made(arguments)
            return f"{made}\n" if made else None
        if (command.path, *arguments[:-1]) in _FINDING_PROGRAMS and is_static(arguments[-1]):
            return f"{ANY}/{arguments[-1]}\n"
        if command.program == "cat" and not arguments:
            return self.inputs.get(index)
        return None

    def substitute(self, indices: Sequence[int], *, is_cut: bool) -> str:
        """Return what the output of the commands in `$(…)` may be.

        `is_cut` says that it becomes words of its own.
        """
        known = self.static_output(indices)
        if known is not None:
            return known.rstrip("\n")
        if not self._print_names(self._find_sources(indices)):
            return MANY
        if is_cut and (names := self.printed_names(indices)):
            return "\n".join(names)
        prints_others = any(map(self._prints_others, self._find_sources(indices)))
        return ANY if prints_others or self._prints_names_elsewhere(indices) else NAME

    def _assigns(self, name: str) -> bool:
        return any(name in command.variables for command in self._reading.commands)

    def find_lines_read(
        self, arguments: Sequence[str], given: Input
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield each variable of a `read` with what it may have of a line, if that is known."""
        options = [*takewhile(lambda word: word[:1] in ("-", ""), arguments)]
        names = arguments[len(options) :] or ("REPLY",)
        if options not in _OPTIONS_OF_READ or not all(map(str.isidentifier, names)):
            return
        if given.text is None:
            lines = self.printed_names(given.sources) if len(names) == 1 else []
        elif "" in options:
            lines = [given.text.rstrip("\n")]
            if len(names) > 1 and "\n" in lines[0]:
                return  # it separates fields
        else:
            lines = given.text.removesuffix("\n").split("\n")
        if given.text is not None and "r" not in "".join(options) and "\\" in given.text:
            return
        separators = (
            self._reading.variables.find_separators() if arguments[-1:] == names[-1:] else ""
        )
        rows = [split_line(line, separators, len(names)) for line in lines]
        if rows and all(field[-1:] != "/" and field != MANY for row in rows for field in row):
            for name, *fields in zip(names, *rows, strict=True):
                yield name, fields

    def printed_names(self, indices: Sequence[int]) -> list[str]:
        """Return words for the names that the commands print; none if they print other texts."""
        commands = self._find_sources(indices)
        if not self._print_names(commands):
            return []
        producers = [command for command in commands if not command.sources]
        filters = [command for command in commands if command.sources]
        if any(map(self._prints_others, producers)) or not all(map(self._keeps_lines, filters)):
            return []
        names: dict[str, None] = {}
        for command in producers:
            operands = [word for word in command.arguments if word[:1] != "-"]
            names.update(dict.fromkeys(self._find_files(command) or (*operands, NAME)))
        return list(names)

    def _find_files(self, command: SimpleCommand) -> list[str]:
        """Return words for the files that a command names; none if it prints other names."""
        wrapper = self._reading.reader.wrappers.find(command.program)
        if wrapper is None or not wrapper.names:
            return self._find_file_names(command)
        if self._prints_others(command):
            return [MANY]
        return find_names_of(wrapper, command.arguments)

    def _find_file_names(self, command: SimpleCommand) -> list[str]:
        """Return words for the files whose names a command prints; none if it prints others."""
        reader = self._reading.reader
        for name, *words in reader.file_names:
            known = reader.programs.find(name) or UNKNOWN_PROGRAM
            if command.path == name and all(_has_word(command, word, known) for word in words):
                break
        else:
            return []
        operands = [word for word in command.arguments if word[:1] != "-" and word not in words]
        if known.reads == "rest" and "--files" not in words:
            operands = operands[1:]  # behind the pattern
        if name == "ls" and any(_has_word(command, word, known) for word in _ALL_OF_LS):
            return [MANY]  # `..` is one of them
        files = [f"./{NAME}"] if name == "ls" or not operands else []
        for word in operands:
            is_pattern = "*" in word and word[:1] not in "/~" and ".." not in word
            files += [f"./{NAME}"] if is_pattern else [word, f"{word.rstrip('/')}/{NAME}"]
        return files

    def _prints_names_elsewhere(self, indices: Sequence[int]) -> bool:
        """Whether commands that name files name some that are not below the current folder."""
        commands = self._find_sources(indices)
        files = (file for command in commands for file in self._find_files(command))
        return any(map(_ELSEWHERE.search, files))

    def _print_names(self, commands: list[SimpleCommand]) -> bool:
        """Whether all that the commands print are names, so that none is an option."""
        names = self._reading.reader.names
        return bool(commands) and all(
            command.program in names
            and command.program not in self._reading.functions
            and (
                not self._find_program(command).keeps_lines
                or bool(command.sources)
                or bool(self._find_file_names(command))
            )
            for command in commands
        )

    def _find_program(self, command: SimpleCommand) -> Program:
        return self._reading.reader.programs.find(command.program) or UNKNOWN_PROGRAM

    def _prints_others(self, command: SimpleCommand) -> bool:
        others = self._find_program(command).prints_others
        return bool(others) and any(word.startswith(others) for word in command.arguments)

    def _keeps_lines(self, command: SimpleCommand) -> bool:
        """Whether a command prints some of the lines that it reads, as they are."""
        if command.program == "tr":
            return set(command.arguments) <= {"\\n", "\\0", "\n"}
        program = self._find_program(command)
        letters = {option[1] for option in program.keeps_lines}
        if not letters or any(MANY in word for word in command.arguments):
            return False
        found = read_arguments(command.arguments, program)
        reads_files = any(not word.lstrip("+").isdigit() for word in find_operands(program, found))
        return not reads_files and all(
            letters.issuperset(option.text[1:].rstrip(digits)) for option in found.options
        )

    def _find_sources(self, indices: Sequence[int]) -> list[SimpleCommand]:
        """Return the commands, and all whose output reaches them."""
        seen = set(indices)
        left = list(indices)
        found = []
        while left:
            command = self._reading.commands[left.pop()]
            found.append(command)
            left += (index for index in command.sources if index not in seen)
            seen.update(command.sources)
        return found


def _name_part_of(program: str, path: str, ending: str = "", *more: str) -> str | None:
    """Return what `basename` or `dirname` prints; None if that is not known."""
    word = path.rstrip("/")
    if more or not word:
        return None if more or not path else "/\n"
    if program == "dirname":
        folder = change(word, "%/*}") if word not in (".", "~", START) else MANY
        if folder == word:
            folder = "." if is_static(word) else MANY
        return f"{ANY if MANY in folder or ending else folder or '/'}\n"
    name = change(word, "##*/}")
    if MANY in name + ending:
        return None
    return f"{name.removesuffix(ending)}\n"


def _has_word(command: SimpleCommand, word: str, program: Program) -> bool:
    """Whether a command has a word, or an option of one letter in a cluster."""
    with_value = {name[1] for name in program.values if len(name) == 2}
    for one in command.arguments:
        if one == word:
            return True
        if one == "--":
            break
        if len(word) == 2 == len(word.lstrip("-")) + 1 and one[:1] == "-" != one[1:2]:
            before, found, _ = one[1:].partition(word[1])
            if found and with_value.isdisjoint(before):
                return True
    return False


def _name_made(arguments: Sequence[str]) -> str | None:
    """Return a word for what mktemp has made; None if that is not known."""
    words = [word for word in arguments if word not in _MADE_IN_TMP]
    template = "".join(word for word in words if word != "-t")
    if len(words) > 1 + ("-t" in words) or template[:1] == "-" or not is_static(template):
        return None
    if "-t" in words or not template:
        return None if "/" in template else f"/tmp/{NAME}"  # noqa: S108 - as it says
    return _TEMPLATE.sub(NAME, template) if _TEMPLATE.search(template) else None


def _unescape(text: str) -> str | None:
    """Return a text with its escapes decoded, if they are plain ones."""
    if any(match[1] not in _ESCAPED for match in _ESCAPE.finditer(text)):
        return None
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text)
