"""Commands that programs run: the arguments of `sudo`, the text of `sh -c`, the input of `bash`."""

from __future__ import annotations

import re
from shlex import quote
from typing import TYPE_CHECKING

import msgspec

from policyguard.model.shell import Program, Wrapper
from policyguard.shell.builtins import ASSIGNING, CONTROLLING, EVALUATING, MOVERS
from policyguard.shell.command_line import (
    ANY,
    GLOB,
    MANY,
    MARKS,
    NAME,
    PROGRAM_NOT_KNOWN,
    START,
    Redirect,
    SimpleCommand,
    blur,
    is_written_out,
)
from policyguard.shell.folders import ABROAD
from policyguard.shell.option_texts import hides_command
from policyguard.shell.options import WrapperOptions, leaves_folder
from policyguard.shell.plain import KEYWORDS
from policyguard.shell.script.code_reader import CodeReader
from policyguard.shell.script.evaluated import find_evaluated, has_command, run_evaluated
from policyguard.shell.script.inputs import Input
from policyguard.shell.script.named_files import add_input, run_on_found
from policyguard.shell.script.outputs import Outputs
from policyguard.shell.script.placeholders import find_unknown_end, write_marks
from policyguard.shell.script.script_files import run_file, run_script
from policyguard.shell.script.setups import only_sets_up
from policyguard.shell.script.variables.variables import enter_wrapper
from policyguard.shell.script.written_files import WrittenFiles
from policyguard.shell.words import is_one_word, is_static

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_WINDOWS_PROGRAM = ".exe"  # in WSL and Git Bash, `git.exe` is git


class Wrapped:
    """Adds a command, and what it runs in turn, to one reading."""

    def __init__(self, reading: Statements) -> None:
        self.reading = reading
        reader = reading.reader
        self._wrappers = reader.wrappers
        self._code = reader.code
        self.outputs = Outputs(reading)
        self._programs = reader.programs
        self.files = WrittenFiles(reading, self.outputs)
        self._aliases: dict[str, str] = {}
        self.has_disabled = False
        """Whether `enable` may have replaced what is built into the shell."""
        self._code_reader = CodeReader(self)

    def add(
        self,
        words: list[str],
        given: Input,
        redirects: tuple[Redirect, ...],
        variables: tuple[str, ...],
        around: tuple[str, ...],
    ) -> list[int]:
        """Add the command of `words`; return the indices of those that write to its output."""
        reading = self.reading
        if len(around) > reading.bounds.depth:
            return reading.add_unknown("nesting is too deep", given.sources)
        if reading.standard_input and not given:
            given = msgspec.structs.replace(reading.standard_input, words=given.words)
        if reading.matches_hidden:
            words = [word.replace(GLOB, ANY) for word in words]
        if not words:
            none = SimpleCommand("", "", (), redirects, variables, given.words, around)
            return [reading.add(none)] if redirects or variables or given.words else []
        path, arguments = words[0], words[1:]
        program = path.rstrip("/").rpartition("/")[2] or path
        if program.endswith(_WINDOWS_PROGRAM) and self._code.find(program) is None:
            program = program.removesuffix(_WINDOWS_PROGRAM)
        if around and "@" in program[1:]:
            program = program.partition("@")[0]  # `npx npm@latest`
        sources = (*given.sources, *given.words)
        if self.files:
            sources += self.files.find_writers(words)
        is_known = is_static(program)
        if not is_known:
            program = find_unknown_end(program)
        position = reading.variables.position
        folders = position.passed.folders
        if position.passed is not position.failed or not folders or reading.variables.drifts:
            folders = reading.control.find_folders()
        command = SimpleCommand(
            path, program, tuple(arguments), redirects, variables, sources, around, False, folders
        )
        index = reading.add(command)
        if given.text is not None:
            self.outputs.inputs[index] = given.text
        positional = reading.variables.positional
        indices = [index, *self._add_run(index, given, is_known=is_known)]
        if reading.variables.positional is not positional and not self._moves_own(command):
            reading.variables.positional = None
        functions = reading.functions
        if functions:
            if path in functions and not functions.is_own_program(path, around):
                indices += functions.call(path, arguments, given)
            else:
                functions.expect(words)
        if program in CONTROLLING:
            reading.control.note(command)
        elif MANY in path:
            reading.control.doubt()  # it may be `cd`
        elif path[:2] == "{ ":
            reading.control.drift()
        return indices

    def _add_run(self, index: int, given: Input, *, is_known: bool) -> list[int]:
        """Add what a command runs in turn; return the indices of those that write to its output.

        `is_known` says that the name of its program is.
        """
        reading = self.reading
        command = reading.commands[index]
        path, program, arguments = command.path, command.program, [*command.arguments]
        if program in self._aliases:
            return self._run_alias(program, arguments, given)
        is_lone = is_known and not command.redirects and not self.files
        reads = (given or given.words) and program in reading.reader.input_programs
        if is_lone and not reads and reading.reader.is_inert(program, arguments):
            return []
        if self.files and path in self.files:
            self.add(["sh", path], Input(), (), (), command.wrappers)
        if command.redirects or self._programs.find(program) is not None:
            self.files.note(index)
        if not is_known:
            reading.opaque[PROGRAM_NOT_KNOWN] = None
            return []
        if program in EVALUATING:
            for word in find_evaluated(program, arguments):
                run_evaluated(self, word)
        if program in MOVERS:
            reading.variables.move_positional(program, arguments)
        elif program in ASSIGNING:
            reading.variables.read_into(program, arguments)
            is_plain = not (reading.functions.is_running or reading.standard_input)
            if path == "read" and given and is_plain and self.is_builtin(path):
                for name, lines in self.outputs.find_lines_read(arguments, given):
                    reading.variables.replace_by_lines(name, lines)
        elif program in KEYWORDS:
            self._run_keyword(program, arguments)
        known = self._programs.find(program)
        if known is not None:
            for text in reading.reader.option_texts.find(known, arguments, program):
                self._run_visible(
                    text, guessed=False, leaves=leaves_folder(known.unknown_folder, arguments)
                )
            if known.hides and hides_command(known, arguments):
                reading.add_unknown("command that an option runs is not known", command.sources)
            if known.runs_input:
                self._run_input(known, arguments, given)
        name, wrapper, behind = self._wrappers.find_for(program, arguments)
        if wrapper is not None and not (behind and behind[0] in wrapper.idle):
            with enter_wrapper(reading, wrapper, index):
                return self._unwrap(wrapper, name, [*behind], index, given)
        _, runner, behind = self._code.find_for(program, arguments)
        if runner is not None and runner.hidden:
            reading.add_unknown("commands of another shell", command.sources)
        elif runner is not None:
            with reading.variables.in_process(command.variables):
                self._code_reader.read(runner, behind, index, given)
        elif known is None:
            for found in reading.reader.option_texts.guess(arguments):
                self._run_visible(found, guessed=True, around=(*command.wrappers, program))
        return []

    def _run_keyword(self, program: str, words: list[str]) -> None:
        """Forget what stands behind a keyword that the grammar takes for a program: `time x=y`."""
        variables = self.reading.variables
        variables.forget_named(words)
        if program == "{" or "{" in words:
            self.reading.control.drift()
        if not MOVERS.isdisjoint(words):
            variables.positional = None
        if b"$" in self.reading.source and (program == "{" or "{" in words):
            self.reading.add_unknown("syntax error")  # the grammar ends the group elsewhere

    def _moves_own(self, command: SimpleCommand) -> bool:
        """Whether the shell that reads the text runs a command of `MOVERS`, for certain."""
        return (
            command.path in MOVERS
            and not (command.wrappers or command.redirects)
            and self.is_builtin(command.path)
        )

    def is_builtin(self, name: str) -> bool:
        """Whether `name` means what is built into the shell: nothing in the text changes that."""
        return (
            name not in self.reading.functions
            and name not in self._aliases
            and not self.has_disabled
        )

    def assign(self, name: str, value: str) -> None:
        """Add what a variable makes a program run, such as PAGER."""
        reader = self.reading.reader
        if has_command(value):
            run_evaluated(self, value)
        if name in reader.command_variables:
            self._run_visible(value, guessed=False)
        elif name in reader.option_variables:
            self._run_visible(f"{reader.option_variables[name]} {value}", guessed=True)

    def _run_input(self, program: Program, arguments: list[str], given: Input) -> None:
        """Add the commands in the lines of what a program such as crontab or psql reads."""
        if given.text is not None:
            read = [given.text]
        else:
            read = [self.outputs.static_output([source]) or "" for source in given.sources]
        if self.files or given.words:
            for word in arguments:
                name = word.partition("=")[2] if word[:2] == "--" else word
                read.append(self.files.read_for(name, given).text or "")
        is_known = any(text.strip(f"{MARKS} \n") for text in read)
        leaves = leaves_folder(program.unknown_folder, arguments)
        if program.input == "commands" and given and not is_known:
            self.reading.add_unknown("input of a shell is not known", given.sources)
        for text in read:
            for found in self.reading.reader.option_texts.find_in(program, text):
                self._run_visible(found, guessed=False, leaves=leaves)

    def _run_visible(
        self,
        found: str | list[str],
        *,
        guessed: bool,
        around: tuple[str, ...] = (),
        leaves: bool = False,
    ) -> None:
        """Add what is run beside a command, as far as it is written out.

        `leaves` says that it is run in another folder, which is not known.
        """
        reading = self.reading
        before, count = dict(reading.opaque), len(reading.commands)
        apart, process = reading.functions.keep_apart(), reading.variables.in_process()
        with apart, process, reading.control.keep():
            if leaves:
                reading.control.leave()
            if isinstance(found, str):
                self.run_text(found, Input())
            else:
                self.add(found, Input(), (), (), around)
        reading.opaque = before
        added = reading.commands[count:]
        runs = any(item.path or item.redirects for item in added)
        for index, item in enumerate(added, count):
            if not runs or not is_written_out(item):
                item = SimpleCommand("", "", (), wrappers=item.wrappers)  # it keeps its place
            elif guessed:
                item = blur(item) if isinstance(found, str) else item
                item = msgspec.structs.replace(item, guessed=True)
            reading.commands[index] = item

    def _unwrap(
        self, wrapper: Wrapper, name: str, arguments: list[str], index: int, given: Input
    ) -> list[int]:
        command = self.reading.commands[index]
        around = (*command.wrappers, command.program)
        if wrapper.feeds:
            given = Input((), MANY)
        if wrapper.assignments and any(word.startswith("BASH_FUNC_") for word in arguments):
            self.reading.add_unknown("function in the environment")
        if wrapper.after and not (wrapper.joins and set(wrapper.after).isdisjoint(arguments)):
            return run_on_found(self, wrapper, arguments, given, command)
        options = WrapperOptions(wrapper)
        if len(arguments) < len(command.arguments):
            options.read_before(command.arguments[: -len(arguments) or None])
        position = options.read(arguments)
        if folder := options.find_folder():
            self.reading.control.enter(folder, around)
        elif wrapper.elsewhere:
            self.reading.control.leave(ABROAD)
        elif options.leaves:
            self.reading.control.leave()
        texts = options.texts
        rest = arguments[position + wrapper.operands :]
        is_option = bool(rest) and rest[0].startswith("-") and not options.program
        if wrapper.operands and is_option:  # `kubectl exec pod -c app -- ls`
            rest = rest[options.read(rest) :]
        if wrapper.operands and "--" in rest:  # an option with a value may be one that no list has
            self._run_visible(rest[rest.index("--") + 1 :], guessed=True, around=around)
        if mark := next((word for word in rest if word in wrapper.inline), ""):
            at = rest.index(mark)
            given, rest = Input(given.sources, "\n".join(rest[at + 1 :])), rest[:at]
        if options.program:
            rest = [options.program, *rest]
        elif wrapper.starts_shell and "--" in arguments:  # `su -- -c text`
            behind = arguments[arguments.index("--") + 1 :]
            rest = ["sh", *behind] if "".join(behind[:1])[:1] == "-" else rest
        if options.texts and wrapper.assignments:  # `env -S "A=1 program" argument`
            own = [name] if options.texts[-1][:1] == "-" else []
            options.texts[-1] = " ".join([*own, options.texts[-1], *rest])
        indices: list[int] = []
        for file in options.files:
            indices += run_file(self, self.files.read_for(file, given), Input()) or []
        variables = self.reading.variables
        outer, variables.positional = variables.positional, options.positional or [name]
        for text in texts:
            indices += self.run_text(text, given)
        variables.positional = outer
        if texts:
            if wrapper.script:
                self.ignore_input(index, given)
            return indices
        if (wrapper.joins or wrapper.sources) and only_sets_up(self.reading, rest, given):
            return indices
        if wrapper.script or wrapper.sources:
            return run_script(self, rest, options, index, given)
        if wrapper.defines:
            for word in rest:
                name, _, text = word.partition("=")
                self._aliases[name] = text
                indices += self.run_text(text, given)
            return indices
        names: list[str] = []
        kept = variables.keep()
        while wrapper.assignments and rest and (match := _ASSIGNMENT.match(rest[0])):
            names.append(match[1])
            value = rest[0][match.end() :]
            self.assign(match[1], value)
            variables.replace(match[1], value)
            rest = rest[1:]
        if not rest:
            if command.program == "exec" and given:
                self.reading.standard_input = given
            if wrapper.starts_shell:
                indices = run_script(self, [], options, index, given)
            variables.restore(kept)
            return indices
        if wrapper.joins and not wrapper.after:
            made = add_input(self, rest, given, options) if wrapper.appends else [rest]
            if wrapper.later and is_one_word(rest[0].replace(NAME, ANY)):
                made = [rest[:1]]  # behind the text of a `trap` stand its signals
            return [each for words in made for each in self.run_text(" ".join(words), given)]
        assigned = (*command.variables, *names)
        has_input = wrapper.appends or options.placeholder
        made = add_input(self, rest, given, options) if has_input else [rest]
        if options.other_command:
            options.placeholder = "{}"
            made += add_input(self, options.other_command, given, options)
        indices = [
            each
            for words in made
            for each in self.add(words, given, command.redirects, assigned, around)
        ]
        if names:
            variables.restore(kept)
        return indices

    def _run_alias(self, name: str, arguments: list[str], given: Input) -> list[int]:
        """Run what an alias stands for; in it, its own name is that of a program."""
        text = self._aliases.pop(name)
        if name in MOVERS:  # the alias, or the program where a shell has no aliases
            self.reading.variables.positional = None
        words = [quote(word) if is_static(word) else word for word in arguments]
        indices = self.run_text(" ".join([text, *words]), given)
        self._aliases[name] = text
        return indices

    def run_text(self, text: str, given: Input) -> list[int]:
        """Read a command text, in which parts may be unknown."""
        if START in text:
            text = self.reading.control.write_from_start(text)
        if not is_static(text):
            if not text.strip(MARKS + " \t\n;"):
                return self.reading.add_unknown("command text is not known", given.sources)
            text = write_marks(text)
        return self.reading.read_text(text, given)

    def ignore_input(self, index: int, given: Input) -> None:
        """Note that the command runs something else than its input, which is data to it."""
        if not given.sources:
            return
        commands = self.reading.commands
        command = commands[index]
        sources = (*given.words, *self.files.find_writers((command.path, *command.arguments)))
        commands[index] = msgspec.structs.replace(command, sources=sources)
