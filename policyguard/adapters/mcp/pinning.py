"""The lock that `mcp pin` writes and `mcp diff` compares with, and what they search for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from policyguard.compiler.build.named_patterns import NamedPatterns
from policyguard.compiler.check.pinned_tools import lock_name
from policyguard.compiler.load.loader import load_layers
from policyguard.compiler.pipeline import policy_error, read_layers
from policyguard.model.policy import Policy
from policyguard.pins.lock import (
    EMPTY_LOCK,
    MAX_LOCK_BYTES,
    LockError,
    ToolsLock,
    format_lock,
    read_lock,
)

_SEARCHED = ("prompt_injection*",)
"""What definitions are searched for if the policy does not say."""


class PinContext(NamedTuple):
    """A lock, its file, and a function that names the patterns which occur in a text."""

    file: Path
    lock: ToolsLock
    find_patterns: Callable[[str], list[str]]


def open_lock(policies: Sequence[str], file: Path | None) -> PinContext:
    """Read the lock at `file`, by default the policy's; an empty one if there is none yet.

    Raises `PolicyError` and `LockError`.
    """
    frontend = read_layers(load_layers(policies), os.environ)
    problems = [
        one
        for one in frontend.diagnostics
        if one.severity == "error" and not one.code.startswith("pins/")  # the lock's own
    ]
    policy = frontend.policy
    if policy is None or problems:
        raise policy_error(problems or frontend.diagnostics)
    if file is None:
        name = None if policy.pins is None else lock_name(policy.pins, frontend.merged)
        file = Path("tools.lock") if name is None else Path(name.source.file).parent / name.text
    try:
        with file.open("rb") as handle:
            lock = read_lock(handle.read(MAX_LOCK_BYTES + 1))
    except FileNotFoundError:
        lock = EMPTY_LOCK
    except LockError as error:
        raise LockError(f"{file}: {error}") from None
    return PinContext(file, lock, _finder(policy))


def _finder(policy: Policy) -> Callable[[str], list[str]]:
    names = policy.pins.finds if policy.pins is not None else ()
    return NamedPatterns(policy).finder(names or _SEARCHED)


def write_lock(file: Path, lock: ToolsLock) -> None:
    """Replace the lock at once. It keeps its mode; a new one is for all to read, as the umask says.

    Raises `OSError`.
    """
    target = file.resolve()  # a link stays one
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with temporary.open("x", encoding="utf-8") as handle:
            handle.write(format_lock(lock))
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
