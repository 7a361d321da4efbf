"""What commands print, as far as it is known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from policyguard.model.shell import Wrapper
from policyguard.shell.command_line import ANY, GLOB, MANY, NAME, SimpleCommand
from policyguard.shell.expansion import change
from policyguard.shell.script.inputs import Input
from policyguard.shell.words import is_static

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements

_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_ECHO_ESCAPE = re.compile(r"\\[abcefnrtv0\\]")  # which some shells read without `-e`
_MADE_IN_TMP = frozenset(("-d", "-q", "-dq", "-qd", "--directory", "--quiet"))
"""Options with which mktemp makes a file or folder in `$TMPDIR`, mostly `/tmp`."""
_FINDING_PROGRAMS = frozenset((("which",), ("command", "-v"), ("type", "-P")))
"""Programs that print the path of another."""
_FILTERS = frozenset(("sort", "uniq", "head", "tail", "grep", "egrep", "rg"))
"""Programs that print some of the lines that they read."""
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
            text = " ".join(arguments[flags:]).replace(GLOB, "*") + "\n"
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
            return f"{self._reading.variables.folder}\n"
        if command.path == "basename" and 0 < len(arguments) < 3 and arguments[0][:1] != "-":
            name = change(arguments[0].rstrip("/"), "##*/}")
            ending = arguments[1] if len(arguments) > 1 else ""
            return f"{name.removesuffix(ending)}\n" if MANY not in name + ending else None
        if command.path == "dirname" and len(arguments) == 1 and arguments[0][:1] != "-":
            folder = change(arguments[0].rstrip("/"), "%/*}")
            is_top = is_static(folder) and (not folder or folder == arguments[0].rstrip("/"))
            return f"{folder}\n" if MANY not in folder and not is_top else None
        if command.path == "mktemp" and _MADE_IN_TMP.issuperset(arguments):
            return None if self._assigns("TMPDIR") else f"/tmp/{NAME}\n"  # noqa: S108 - as it says
        if (command.path, *arguments[:-1]) in _FINDING_PROGRAMS and is_static(arguments[-1]):
            return f"{ANY}/{arguments[-1]}\n"
        if command.program == "cat" and not arguments:
            return self.inputs.get(index)
        return None

    def _assigns(self, name: str) -> bool:
        return any(name in command.variables for command in self._reading.commands)

    def find_lines_read(
        self, arguments: Sequence[str], given: Input
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield the variable of a `read -r` with the lines that it may have, if they are known."""
        *options, name = arguments or ("",)
        if not (name.isidentifier() and options in (["-r"], ["-r", "-d", ""], ["-rd", ""])):
            return
        if given.text is None:
            lines = self.printed_names(given.sources)
        elif len(options) > 1:
            lines = [given.text.rstrip("\n")]
        else:
            lines = given.text.splitlines()
        if lines and all(line == line.strip() and line[-1:] != "/" for line in lines):
            yield name, lines

    def printed_names(self, indices: Sequence[int]) -> list[str]:
        """Return words for the names that the commands print; none if they print other texts."""
        commands = self._find_sources(indices)
        if not self._print_names(commands):
            return []
        names: dict[str, None] = {}
        is_filtered = all(command.program in _FILTERS for command in commands if command.sources)
        for command in commands:
            if command.sources:
                continue
            wrapper = self._reading.reader.wrappers.find(command.program)
            if wrapper is not None and wrapper.names:
                names.update(dict.fromkeys(find_names_of(wrapper, command.arguments)))
            elif is_filtered and (files := self._find_file_names(command)):
                names.update(dict.fromkeys(files))
            else:
                operands = (word for word in command.arguments if word[:1] != "-")
                names.update(dict.fromkeys((*operands, NAME)))
        return list(names)

    def _find_file_names(self, command: SimpleCommand) -> list[str]:
        """Return words for the files whose names a command prints; none if it prints others."""
        reader = self._reading.reader
        for name, *words in reader.file_names:
            if command.path == name and all(_has_word(command.arguments, word) for word in words):
                break
        else:
            return []
        operands = [word for word in command.arguments if word[:1] != "-" and word not in words]
        program = reader.programs.find(name)
        if program is not None and program.reads == "rest":
            operands = operands[1:]  # behind the pattern
        files = [f"./{NAME}"] if name == "ls" or not operands else []
        for word in operands:
            is_pattern = "*" in word and word[:1] not in "/~" and ".." not in word
            files += [f"./{NAME}"] if is_pattern else [word, f"{word.rstrip('/')}/{NAME}"]
        return files

    def prints_names(self, indices: Sequence[int]) -> bool:
        """Whether all that the commands print are names, so that none is an option."""
        return self._print_names(self._find_sources(indices))

    def _print_names(self, commands: list[SimpleCommand]) -> bool:
        names = self._reading.reader.names
        return bool(commands) and all(
            command.program in names and command.program not in self._reading.functions
            for command in commands
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


def _has_word(arguments: Sequence[str], word: str) -> bool:
    """Whether a command has a word, or an option of one letter in a cluster."""
    if word in arguments:
        return True
    return len(word) == 2 and any(
        one[:1] == "-" != one[1:2] and word[1] in one for one in arguments
    )


def _unescape(text: str) -> str | None:
    """Return a text with its escapes decoded, if they are plain ones."""
    if any(match[1] not in _ESCAPED for match in _ESCAPE.finditer(text)):
        return None
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text)


def find_names_of(wrapper: Wrapper, arguments: Sequence[str]) -> list[str]:
    """Return words for the names that a program like find comes upon."""
    starts = []
    for word in arguments:
        if word[:1] in "-(!":
            break
        starts.append(word)
    patterns = [
        value.replace("*", GLOB).replace("?", GLOB)
        for option, value in pairwise(arguments)
        if option in wrapper.names
    ]
    ends = [end for name in patterns for end in (name, f"{NAME}/{name}")] or [NAME]
    return [f"{start.rstrip('/')}/{end}" for start in starts or ["."] for end in ends]
