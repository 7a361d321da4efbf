"""Commands that code of other languages runs: `python -c`, `awk`, scripts that a text wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from policyguard.model.shell import CodeRunner
from policyguard.shell.command_line import (
    MANY,
    MARKS,
    PROGRAM_NOT_KNOWN,
    Redirect,
    SimpleCommand,
    run_by,
)
from policyguard.shell.option_texts import compile_pattern
from policyguard.shell.options import read_code_options
from policyguard.shell.script.code_texts import find_called, find_commands, find_names
from policyguard.shell.script.inputs import Input
from policyguard.shell.words import is_static

if TYPE_CHECKING:
    from policyguard.shell.script.wrapped import Wrapped

_NO_FILE = ("-", "/dev/stdin")


def is_prose(code: str, runner: CodeRunner, command: SimpleCommand) -> bool:
    """Whether code runs nothing that it does not write out, as far as its calls tell.

    If its language puts variables into texts, it uses no file of such a name either.
    """
    calls = runner.command_calls
    texts = (code, *command.arguments)
    return bool(calls) and is_static(code) and not any(call in t for t in texts for call in calls)


def _begins_unknown(commands: Sequence[SimpleCommand], first: int) -> bool:
    """Whether a text is one command that begins with what is not known, such as "`x` is new".

    `first` is the index of the first of these commands.
    """
    *inner, last = commands
    return (
        not (is_static(last.path) or last.redirects or last.wrappers or last.variables)
        and all(first + number in last.sources for number in range(len(inner)))
        and all(is_static(item.path) for item in inner)
    )


class CodeReader:
    """Adds the commands that a program runs which is given code."""

    def __init__(self, wrapped: Wrapped) -> None:
        self._wrapped = wrapped
        self._reading = wrapped.reading

    def read(self, runner: CodeRunner, arguments: Sequence[str], index: int, given: Input) -> None:
        """Read the commands that code of another language names in its texts.

        The `arguments` are those behind the subcommand, if the runner is one of a subcommand.
        """
        reading, files = self._reading, self._wrapped.files
        command = reading.commands[index]
        options = read_code_options(runner, arguments)
        texts, operands = options.texts, options.operands
        if options.module:
            around = (*command.wrappers, command.program)
            self._wrapped.add(options.module, given, (), command.variables, around)
        if runner.operand and not options.files and operands:
            texts = [*texts, operands.pop(0)]
        scripts = options.files if runner.operand else [*options.files, *operands[:1]]
        named = [file for file in scripts if file not in _NO_FILE]
        is_input = runner.script or (scripts and not named)
        is_run = any(call in text for text in texts for call in runner.evaluates)
        if is_run or (is_input and not texts and not named and not options.module):
            if given.text is not None:
                texts = [*texts, given.text]
            elif given.sources:
                reading.add_unknown("input of an interpreter is not known", given.sources)
                return
        else:
            self._wrapped.ignore_input(index, given)
            for file in named:
                script = files.read_for(file, given)
                if script.text is not None:
                    texts = [*texts, script.text]
                elif script.sources:
                    reading.add_unknown("script that is run is not known", script.sources)
        if texts and operands and not runner.operand:  # code may run them, as `exec @ARGV`
            behind = SimpleCommand(operands[0], operands[0], tuple(operands[1:]))
            reading.add(run_by(command.program, behind))
        for text in texts:
            self._read_text(text, runner, index, given)
            if not runner.runs_by and reading.reader.runs_computed(text):
                self._run_computed(text, operands, index, given)

    def _read_text(self, text: str, runner: CodeRunner, index: int, given: Input) -> None:
        reading = self._reading
        program = reading.commands[index].program
        has_prose = is_prose(text, runner, reading.commands[index])
        names = tuple(find_names(text, reading.bounds.words, has_prose=has_prose))
        if runner.runs_by and is_static(text) and not any(by in text for by in runner.runs_by):
            if ">" in text and names:  # `awk '{print > "file"}'`
                self._add_names(text, runner, names, program)
            return
        if runner.runs_by and given.text is not None:  # `awk '{system($0)}'`
            self._run_found(given.text, Input((index,)), program)
        reading.opaque["code of another language"] = None
        if not text.strip(MARKS + " \n"):
            reading.add_unknown("code is not known", given.sources)
            return
        if runner.prints and compile_pattern(runner.prints).search(text):
            return
        with reading.control.keep():
            if any(moving in text for moving in reading.reader.facts.moving_code):
                reading.control.leave()
            self._add_names(text, runner, names, program)
            facts = reading.reader.facts
            running = (*facts.running_code, *runner.evaluates)
            readers = () if any(one in text for one in running) else facts.reading_code
            most = reading.bounds.commands
            read = Input((index,)) if runner.runs_by else Input()
            called = tuple(find_called(text, facts.calling_code, most))
            for found in called:
                self._run_found(found, read, program, is_called=True)
            for found in find_commands(text, runner.calls, most, readers):
                if found not in called:
                    self._run_found(found, read, program, has_prose=has_prose)

    def _run_computed(self, code: str, operands: Sequence[str], index: int, given: Input) -> None:
        """Read what code runs that is no text of it: words behind it, or its input."""
        program = self._reading.commands[index].program
        if operands and ("argv" in code or "ARGV" in code):
            for word in operands:
                self._run_found(word, Input(), program)
        elif given.text is not None:
            self._run_found(given.text, Input(), program)
        else:
            self._reading.add_unknown("code runs what it computes", given.sources)

    def _add_names(
        self, text: str, runner: CodeRunner, names: tuple[str, ...], program: str
    ) -> None:
        """Add the files that code names, which it may read, and write if it writes any."""
        is_writing = any(call in text for call in runner.writes)
        written = tuple(Redirect(True, name) for name in names if is_writing)
        self._reading.add(SimpleCommand("", "", names, written, wrappers=(program,)))

    def _run_found(
        self,
        text: str,
        given: Input,
        runner: str,
        *,
        has_prose: bool = False,
        is_called: bool = False,
    ) -> None:
        """Read a text of code if it may be a command; prose in it is no reason to be opaque.

        `has_prose` says that a text is prose if it begins with a program which is not known,
        `is_called` that the code runs it.
        """
        reading = self._reading
        before = dict(reading.opaque)
        count, folders = len(reading.commands), reading.control.find_folders()
        with reading.functions.keep_apart(), reading.control.keep():
            self._wrapped.run_text(text, given)
        added = reading.commands[count:]
        reasons = reading.opaque.keys() - before.keys()
        if "syntax error" in reasons:
            added = [
                msgspec.structs.replace(item, folders=folders)
                for item in added
                if item.path != MANY
            ]
            reading.opaque = before
        elif has_prose and reasons == {PROGRAM_NOT_KNOWN} and _begins_unknown(added, count):
            added[-1] = msgspec.structs.replace(added[-1], path="", program="")
            reading.opaque = before
        reading.commands[count:] = [run_by(runner, item, is_prose=not is_called) for item in added]
