"""Command texts to the simple commands in them."""

from __future__ import annotations

from collections.abc import Sequence

from policyguard.model.shell import Shell
from policyguard.shell.builtins import ASSIGNING, EVALUATING
from policyguard.shell.command_line import ANY, NAME, CommandLine, SimpleCommand
from policyguard.shell.command_text import CommandText
from policyguard.shell.kept_answers import keep_answers
from policyguard.shell.lookup import Lookup
from policyguard.shell.option_texts import OptionTexts, compile_pattern
from policyguard.shell.plain import KEYWORDS, PlainCommand, split_plain
from policyguard.shell.words import is_static

_CHANGING = ASSIGNING | KEYWORDS


class ShellReader:
    """Reads command texts by the data of one policy, and keeps the latest readings.

    Safe to share between threads.
    """

    def __init__(self, facts: Shell) -> None:
        self.facts = facts
        self.wrappers = Lookup(facts.wrappers, facts.bounds.texts)
        self.code = Lookup(facts.code, facts.bounds.texts)
        self.programs = Lookup(facts.programs, facts.bounds.texts)
        self.option_texts = OptionTexts(facts, self.programs)
        self.names = frozenset(facts.names)
        self.file_names = [entry.split() for entry in facts.file_names]
        """Commands that print names of files: the program, and words and options that they have."""
        self.command_variables = frozenset(facts.command_variables)
        self.option_variables = facts.option_variables
        self.input_programs = frozenset(
            name for name, program in facts.programs.items() if program.runs_input
        )
        """Programs in whose input commands may stand."""
        self.variables = dict.fromkeys(facts.variables, ANY)
        """What is known of variables that a text does not assign."""
        self.variables.update(dict.fromkeys(facts.name_variables, NAME))
        self.environment = facts.environment
        self.neutral = frozenset(facts.neutral)
        self.setups = tuple(f"{command} " for command in facts.setups)
        """Beginnings of commands that only print settings for the shell, as words."""
        self.folders = frozenset(facts.folders)
        self._run_no_other: dict[str, bool] = {}
        self._latest: CommandText | None = None
        self._read_kept = keep_answers(self._read, facts.bounds)

    def read(self, text: str) -> CommandLine:
        """Return what `text` runs. It never raises: what cannot be read is opaque."""
        return self._read_kept(text)

    def look_at(self, text: str) -> CommandText:
        """Return what can be asked of a text. The latest is kept: many rules ask about it."""
        latest = self._latest
        if latest is not None and text == latest.text:
            return latest
        asked = CommandText(text, self)
        if len(text) <= self.facts.bounds.chars:
            self._latest = asked
        return asked

    def split_plain(self, text: str) -> list[PlainCommand] | None:
        """Split a text as `plain.split_plain` does, if that has not been done."""
        latest = self._latest
        if latest is not None and text == latest.text:
            return latest.split()
        return split_plain(text)

    def runs_computed(self, code: str) -> bool:
        """Whether code of another language runs what no text of it says."""
        pattern = self.facts.computed_code
        return bool(pattern) and compile_pattern(pattern).search(code)

    def is_inert(self, program: str, arguments: Sequence[str]) -> bool:
        """Whether a command runs no other, and writes nothing that its words name."""
        known = self.programs.find(program)
        writes = known is not None and (known.writes or known.saves)
        return not writes and self.runs_no_other(program, arguments)

    def runs_no_other(self, program: str, arguments: Sequence[str]) -> bool:
        """Whether a command, without a folder before it, runs no command and assigns nothing."""
        answer = self._run_no_other.get(program)
        if answer is None:
            answer = is_static(program) and "/" not in program and program not in _CHANGING
            for table in (self.wrappers, self.code):
                answer = answer and table.find(program) is None
            if len(program) < 64:
                if len(self._run_no_other) >= self.facts.bounds.texts:
                    self._run_no_other.clear()
                self._run_no_other[program] = answer
        return answer and not (
            self.wrappers.has_subcommand(program, arguments)
            or self.code.has_subcommand(program, arguments)
            or self.option_texts.may_be_in(program, arguments)
            or (program in EVALUATING and _runs_evaluated(program, arguments))
        )

    def runs_as_written(self, command: SimpleCommand) -> bool:
        """Whether a program's name says for certain what runs: no variable or folder changes it."""
        folder, slash, _ = command.path.rpartition("/")
        return (
            is_static(command.path)
            and (not slash or folder in self.folders)
            and all(name in self.neutral for name in command.variables)
        )

    def _read(self, text: str) -> CommandLine:
        from policyguard.shell.script.statements import Statements

        statements = Statements(self)
        statements.read_text(text)
        return statements.finish()


def _runs_evaluated(program: str, arguments: Sequence[str]) -> bool:
    from policyguard.shell.script.evaluated import find_evaluated

    return any(find_evaluated(program, arguments))
