"""CEL functions on shell commands, which read them by what the policy says about programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from policyguard.cel.functions.standard import Function
from policyguard.cel.types.types import BOOL, STRING
from policyguard.model.shell import Shell

if TYPE_CHECKING:
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


def shell_functions(shell: Shell) -> tuple[Function, ...]:
    """Return `command.read_only()`. What reads commands is imported by its first call."""

    @cache
    def load() -> Callable[[str], bool]:
        from policyguard.shell.read_only import is_read_only

        return partial(is_read_only, reader=_shared_reader(shell))

    def read_only(command: Any) -> bool:
        return load()(command)

    return (Function("read_only", STRING, (), BOOL, read_only),)
