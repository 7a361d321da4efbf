"""CEL functions on shell commands, which read them by what the policy says about programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from policyguard.cel.functions.standard import Function
from policyguard.cel.types.types import BOOL, STRING
from policyguard.model.shell import Shell


def shell_functions(shell: Shell) -> tuple[Function, ...]:
    """Return `command.read_only()`. What reads commands is imported by its first call."""

    @cache
    def load() -> Callable[[str], bool]:
        from policyguard.shell.read_only import is_read_only
        from policyguard.shell.reader import ShellReader

        return partial(is_read_only, reader=ShellReader(shell))

    def read_only(command: Any) -> bool:
        return load()(command)

    return (Function("read_only", STRING, (), BOOL, read_only),)
