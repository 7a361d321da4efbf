"""Files that a text writes, and may run or read later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from policyguard.shell.arguments import UNKNOWN_PROGRAM, read_arguments
from policyguard.shell.files import find_written, simplify_name
from policyguard.shell.folders import join_folder
from policyguard.shell.script.inputs import Input

if TYPE_CHECKING:
    from policyguard.shell.script.outputs import Outputs
    from policyguard.shell.script.statements import Statements

PROCESS_FILE = "/dev/fd/63"
"""The name of a file that `<(…)` becomes."""
_Written = tuple[tuple[int, ...], str | None]  # by which commands, and what if it is known
_UNWRITTEN: _Written = ((), None)


class WrittenFiles:
    """The files that the commands of one reading write, by their paths."""

    def __init__(self, reading: Statements, outputs: Outputs) -> None:
        self._reading = reading
        self._outputs = outputs
        self._files: dict[str, _Written] = {}

    def __bool__(self) -> bool:
        return bool(self._files)

    def __contains__(self, path: str) -> bool:
        return bool(self._find(path)[0])

    def note(self, index: int) -> None:
        """Keep which files a command writes, and what: they may be run later."""
        command = self._reading.commands[index]
        program = self._reading.reader.programs.find(command.program) or UNKNOWN_PROGRAM
        if not (command.redirects or program.writes or program.saves):
            return
        text = (
            self._outputs.inputs.get(index)
            if command.redirects == ()
            else self._outputs.static_output([index])
        )
        needs_arguments = program.writes or program.saves
        words = command.arguments if needs_arguments else ()
        arguments = read_arguments(words, program)
        for name in find_written(command, program, arguments):
            path = simplify_name(join_folder("", name))
            writers, known = self._files.get(path, ((), text))
            self._files[path] = (*writers, index), text if text == known else None

    def _find(self, path: str) -> _Written:
        """Return who wrote a file; behind a change of the folder by its last part alone."""
        path = simplify_name(join_folder("", path))
        if not self._reading.control.has_moved:
            return self._files.get(path, _UNWRITTEN)
        name = path.rpartition("/")[2]
        same = [written for file, written in self._files.items() if file.rpartition("/")[2] == name]
        writers = tuple(index for indices, _ in same for index in indices)
        return writers, same[0][1] if len(same) == 1 else None

    def read(self, path: str) -> Input:
        """Return what reading a file gives, if the text wrote it."""
        return Input(*self._find(path))

    def read_for(self, path: str, given: Input) -> Input:
        """Return what a command reads from a file among its words, which may be of `<(…)`."""
        if path.startswith(PROCESS_FILE):
            return Input(given.words, self._outputs.static_output(given.words))
        return self.read(path)

    def find_writers(self, words: Sequence[str]) -> tuple[int, ...]:
        """Return the commands that wrote files which these words name, or folders of theirs."""
        found: set[int] = set()
        for word in words:
            path = simplify_name(join_folder("", word))
            while path:
                found.update(self._find(path)[0])
                path = path.rpartition("/")[0]
        return tuple(sorted(found))
