"""CEL functions on shell commands, which read them by what the policy says about programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from policyguard.cel.functions.standard import Function
from policyguard.cel.types.types import BOOL, STRING
from policyguard.model.shell import Shell

if TYPE_CHECKING:
    from policyguard.shell.reader import ShellReader


def shell_functions(shell: Shell) -> tuple[Function, ...]:
    """Return `command.read_only()`. The parser is not imported before the first call."""
    return (Function("read_only", STRING, (), BOOL, _read_only(shell)),)


def _read_only(shell: Shell) -> Callable[[Any], bool]:
    """Return a function that tells whether a command certainly changes nothing."""

    @cache
    def reader() -> ShellReader:
        from policyguard.shell.reader import ShellReader

        return ShellReader(shell)

    def is_read_only(command: Any) -> bool:
        from policyguard.shell.read_only import is_read_only

        return is_read_only(command, reader())

    return is_read_only
