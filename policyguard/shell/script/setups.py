"""Commands that only print settings for the shell, as `pyenv init -`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from policyguard.shell.command_line import MARKS
from policyguard.shell.script.inputs import Input
from policyguard.shell.script.written_files import PROCESS_FILE

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements


def only_sets_up(reading: Statements, rest: Sequence[str], given: Input) -> bool:
    """Whether a shell runs nothing but settings, as in `eval "$(pyenv init -)"`."""
    made = [reading.commands[index] for index in given.words]
    reader = reading.reader
    return (
        bool(made)
        and not "".join(rest).replace(PROCESS_FILE, "").strip(MARKS)
        and not any(item.program in reading.functions for item in made)
        and reader.neutral.issuperset(name for one in reading.commands for name in one.variables)
        and all(
            " ".join((item.path, *item.arguments, "")).startswith(reader.setups) for item in made
        )
    )
