"""The command patterns of one selector against a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from policyguard.shell.command_line import MANY, SimpleCommand
from policyguard.shell.command_text import CommandText
from policyguard.shell.kept_answers import keep_answers
from policyguard.shell.matching import may_match, must_match
from policyguard.shell.pattern import CommandPattern, Stage
from policyguard.shell.plain import PlainCommand
from policyguard.shell.prefilter import find_concern
from policyguard.shell.read_command import ReadCommand
from policyguard.shell.reader import ShellReader
from policyguard.shell.words import is_static

_NOWHERE = "/dev/null"


class CommandPatterns:
    """Patterns any of which may match. Safe to share between threads."""

    def __init__(self, patterns: Sequence[CommandPattern], reader: ShellReader) -> None:
        self.patterns = tuple(patterns)
        self._reader = reader
        self.concerns = find_concern(self.patterns, reader.facts)
        """Whether a text has to be read to know if a pattern may match it."""
        self._last_programs = [pattern.stages[-1].program.literals for pattern in self.patterns]
        self._by_program, self._of_many_programs = self._list_by_program()
        self._has_wide_pipe = any(len(one.stages) > 1 for one in self._of_many_programs)
        bounds = reader.facts.bounds
        self._max_chars = bounds.chars
        self._find_kept = keep_answers(self._find_any, bounds)
        self._covers_kept = keep_answers(self._covers_each, bounds)
        self._candidates_kept = keep_answers(self._find_candidates, bounds)

    def find(self, text: str) -> CommandPattern | None:
        """Return the first pattern that some command of `text` may match, or None."""
        return self._find_kept(text)

    def _find_any(self, text: str) -> CommandPattern | None:
        if len(text) > self._max_chars:
            return self._find(self._reader.look_at(text))
        return self._find_lone(self._reader.look_at(text)) if self.concerns(text) else None

    def _list_by_program(self) -> tuple[dict[str, list[CommandPattern]], list[CommandPattern]]:
        """Return the patterns by the program of their last stage, and those with a glob there."""
        found: dict[str, list[CommandPattern]] = {}
        of_many = []
        for pattern, programs in zip(self.patterns, self._last_programs, strict=True):
            if programs is None:
                of_many.append(pattern)
            for name in programs or ():
                found.setdefault(name, []).append(pattern)
        return found, of_many

    def _find_candidates(self, program: str) -> Sequence[CommandPattern]:
        """Return the patterns that may match a command with this program."""
        wide = [one for one in self._of_many_programs if one.stages[-1].program.matches(program)]
        return (*self._by_program.get(program, ()), *wide)

    def _find_lone(self, asked: CommandText) -> CommandPattern | None:
        """Find a pattern, by reading all if need be: what writes to which matters to a pipe."""
        lone = None if self._has_wide_pipe else asked.find_lone()
        if lone is None:
            return self._find(asked)
        matched: set[int] = set()
        for program, commands in lone.by_program.items():
            candidates = self._candidates_kept(program)
            if any(len(one.stages) > 1 or (lone.moves and one.names_files) for one in candidates):
                return self._find(asked)
            if candidates:
                matched.update(self._find_matching(candidates, commands, "*" not in asked.text))
        if not matched:
            return None
        return next(pattern for pattern in self.patterns if id(pattern) in matched)

    def _find_matching(
        self,
        candidates: Sequence[CommandPattern],
        commands: Sequence[PlainCommand],
        is_written_out: bool,
    ) -> Iterator[int]:
        for command in commands:
            words, read = command.words, None
            for pattern in candidates:
                if is_written_out and any(one.isdisjoint(words) for one in pattern.needed_words):
                    continue  # which takes no reading of options
                read = read or self._read(command)
                if may_match(pattern.stages[0], read):
                    yield id(pattern)

    def _read(self, command: PlainCommand) -> ReadCommand:
        path, *arguments = command.words
        simple = SimpleCommand(path, path, tuple(arguments), command.redirects)
        return ReadCommand(simple, self._reader.programs)

    def find_commands(self, text: str) -> frozenset[int]:
        """Return the indices of the commands of `text` that a pattern may match.

        Where a pattern with several stages may match, these are all.
        """
        commands = self._reader.look_at(text).read_commands()
        if any(len(one.stages) > 1 and _match(one, commands) for one in self.patterns):
            return frozenset(range(len(commands)))
        return frozenset(
            index
            for index, read in enumerate(commands)
            if any(may_match(one.stages[0], read) for one in self.patterns if len(one.stages) == 1)
        )

    def _find(self, asked: CommandText) -> CommandPattern | None:
        programs = asked.find_programs()
        for pattern, last in zip(self.patterns, self._last_programs, strict=True):
            if programs is not None and last is not None and last.isdisjoint(programs):
                continue
            if _match(pattern, asked.read_commands()):
                return pattern
        return None

    def runs(self, text: str) -> bool:
        """Whether some command of `text` certainly matches a pattern."""
        if len(text) <= self._max_chars and not self.concerns(text):
            return False
        commands = [
            read for read in self._reader.look_at(text).read_commands() if not read.command.guessed
        ]
        return any(_match(one, commands, _certainly_matches) for one in self.patterns)

    def shows(self, text: str) -> bool:
        """Whether a command that matches is written out, so that nothing unknown makes it match."""
        if self.runs(text):
            return True
        commands = self._reader.look_at(text).read_commands()
        found = self.find_commands(text)
        is_written_out = [_is_written_out(commands[index].command) for index in found]
        has_pipe = any(len(one.stages) > 1 for one in self.patterns)
        return bool(found) and (all if has_pipe else any)(is_written_out)

    def find_unclear(self, text: str) -> SimpleCommand | None:
        """Return the first command that matches, if it does, by what is not written out in it."""
        commands = self._reader.look_at(text).read_commands()
        found = (commands[index].command for index in sorted(self.find_commands(text)))
        return next((command for command in found if not _is_written_out(command)), None)

    def covers(self, text: str) -> bool:
        """Whether each command of `text` certainly matches a pattern, and none writes a file.

        A text without commands is covered.
        """
        return self._covers_kept(text)

    def _covers_each(self, text: str) -> bool:
        asked = self._reader.look_at(text)
        return not asked.read().opaque and all(
            read.command.guessed or self._covers(read) for read in asked.read_commands()
        )

    def _covers(self, read: ReadCommand) -> bool:
        command = read.command
        if not self._reader.runs_as_written(command):
            return False
        if any(redirect.target != _NOWHERE for redirect in command.redirects):
            return False
        if not command.path:
            return True
        wrappers = self._reader.wrappers
        around = [wrappers.find(name) for name in command.wrappers]
        runner = self._reader.code.find(command.wrappers[-1]) if around else None
        if runner is not None and runner.modules:
            return True  # `pip` in `python -m pip`: who lets python run lets it run this
        if not all(wrapper is not None and wrapper.harmless for wrapper in around):
            return False
        own = wrappers.find(command.program)
        if own is not None and own.harmless:
            return True  # what it runs is a command of its own
        return any(
            len(pattern.stages) == 1 and must_match(pattern.stages[0], read)
            for pattern in self.patterns
        )


def _is_written_out(command: SimpleCommand) -> bool:
    words = (command.path, *command.arguments, *(one.target for one in command.redirects))
    return not command.guessed and all(map(is_static, words))


def _certainly_matches(stage: Stage, read: ReadCommand) -> bool:
    """Whether a command matches for certain; where a stage names files, if all is written out."""
    if not (stage.writes or stage.reads):
        return must_match(stage, read)
    command = read.command
    words = (command.path, *command.arguments, *(one.target for one in command.redirects))
    return all(map(is_static, words)) and may_match(stage, read)


def _match(
    pattern: CommandPattern,
    commands: list[ReadCommand],
    matches: Callable[[Stage, ReadCommand], bool] = may_match,
) -> bool:
    """Whether commands match the stages, each reading from one of the stage before."""
    last = len(pattern.stages) - 1
    reached: set[int] | None = None
    for number, stage in enumerate(pattern.stages):
        matched = {
            index
            for index, read in enumerate(commands)
            if (reached is None or index in reached or read.command.path == MANY)
            and matches(stage, read)
        }
        if not matched or number == last:
            return bool(matched)
        reached = _find_readers(matched, commands)
    return False


def _find_readers(writers: set[int], commands: list[ReadCommand]) -> set[int]:
    """Return the commands that output of `writers` reaches; sources stand before their readers."""
    readers: set[int] = set()
    for index, read in enumerate(commands):
        if any(source in writers or source in readers for source in read.command.sources):
            readers.add(index)
    return readers
