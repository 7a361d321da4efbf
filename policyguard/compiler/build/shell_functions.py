"""Shell commands in policies: one reader for a policy's CEL functions and selectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from policyguard.cel.functions.function import Function
from policyguard.cel.types.types import BOOL, STRING, list_of
from policyguard.model.shell import Shell
from policyguard.shell.kept_answers import keep_answers

if TYPE_CHECKING:
    from policyguard.shell.command_line import CommandLine
    from policyguard.shell.pattern_set import CommandPatterns
    from policyguard.shell.reader import ShellReader


_MAX_READERS = 4
_readers: list[ShellReader] = []
"""The latest readers: policies of one process mostly say the same about programs."""


def _shared_reader(shell: Shell) -> ShellReader:
    from policyguard.shell.reader import ShellReader

    for reader in _readers.copy():
        if reader.facts == shell:
            return reader
    reader = ShellReader(shell)
    _readers[:] = [reader, *_readers[: _MAX_READERS - 1]]
    return reader


class ShellCommands:
    """Reads commands by what a policy says about programs.

    What reads them is imported by the first question.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.bounds = shell.bounds
        self._compile = lru_cache(shell.bounds.texts)(self._compile_patterns)
        self.is_read_only = keep_answers(self._find_read_only, shell.bounds)
        """Whether a command only reads."""

    @cached_property
    def reader(self) -> ShellReader:
        """The reader, which keeps its latest readings."""
        return _shared_reader(self._shell)

    def read(self, text: str) -> CommandLine:
        """Return what a command runs. It never raises."""
        return self.reader.read(text)

    def compile_patterns(self, patterns: Sequence[str]) -> CommandPatterns:
        """Return compiled command patterns. Raises `PatternError` for one that is invalid."""
        return self._compile(tuple(patterns))

    def _compile_patterns(self, patterns: tuple[str, ...]) -> CommandPatterns:
        from policyguard.shell.pattern import CommandPattern
        from policyguard.shell.pattern_set import CommandPatterns

        return CommandPatterns([CommandPattern(text) for text in patterns], self.reader)

    def functions(self) -> tuple[Function, ...]:
        """Return the functions of CEL on commands."""
        return (
            Function("read_only", STRING, (), BOOL, self.is_read_only),
            Function("runs", STRING, (STRING,), BOOL, self._runs, self._prepare),
            Function(
                "only_runs",
                STRING,
                (list_of(STRING),),
                BOOL,
                self._only_runs,
                check_pattern,
                requires_literal=False,
            ),
            Function("paths", STRING, (STRING,), list_of(STRING), self._find_paths, self._prepare),
            Function("opaque", STRING, (), BOOL, self._is_opaque),
        )

    def _find_read_only(self, command: str) -> bool:
        from policyguard.shell.read_only import is_read_only

        return is_read_only(command, reader=self.reader)

    def _prepare(self, pattern: str) -> CommandPatterns:
        return self.compile_patterns((pattern,))

    def _runs(self, command: str, patterns: CommandPatterns) -> bool:
        return patterns.find(command) is not None

    def _only_runs(self, command: str, patterns: list[Any]) -> bool:
        if not all(isinstance(pattern, str) for pattern in patterns):
            raise TypeError
        return self.compile_patterns(patterns).covers(command)

    def _find_paths(self, command: str, patterns: CommandPatterns) -> list[str]:
        from policyguard.shell.command_line import GLOB
        from policyguard.shell.files import normalize
        from policyguard.shell.touched import find_paths_of

        chosen = patterns.find_commands(command)
        found = find_paths_of(self.read(command), self.reader, chosen) if chosen else ()
        return list(dict.fromkeys(normalize(path).replace(GLOB, "*") for path in found))

    def _is_opaque(self, command: str) -> bool:
        return bool(self.read(command).opaque)


def check_pattern(text: str) -> None:
    """Raise `PatternError` if a text is not a command pattern."""
    from policyguard.shell.pattern import CommandPattern

    CommandPattern(text)
