"""Read the lock that a policy's `pins` name, and check the patterns that they search for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from policyguard.compiler.check.content_selectors import check_pattern_name
from policyguard.compiler.inputs import InputFile
from policyguard.compiler.load.loader import read_sibling_file
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import MappingNode, ScalarNode
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.pins import Pins
from policyguard.model.policy import Policy
from policyguard.pins.lock import MAX_LOCK_BYTES, LockError, ToolsLock, read_lock

MISSING_LOCK = "pins/no-lock"
"""The code of the error that there is no lock yet: `mcp pin` writes the first one."""


class PinnedTools(NamedTuple):
    """A policy's lock and its file."""

    lock: ToolsLock
    file: InputFile


def read_pinned_tools(
    pins: Pins | None, merged: MergedPolicy
) -> tuple[PinnedTools | None, list[Diagnostic]]:
    """Read the lock; None if the policy pins nothing, or it cannot be read."""
    if pins is None:
        return None, []
    name = lock_name(pins, merged)
    found = read_sibling_file(name, MAX_LOCK_BYTES)
    if isinstance(found, Diagnostic):
        if found.code != "load/not-found":
            return None, [found]
        hint = "write it with `policyguard mcp pin --server NAME -- COMMAND...`"
        return None, [name.source.diagnostic(MISSING_LOCK, found.message, name.span, hint=hint)]
    file, data = found
    try:
        return PinnedTools(read_lock(data), file), []
    except LockError as error:
        message = f"`{file.display_name}`: {error}"
        return None, [name.source.diagnostic("pins/malformed", message, name.span)]


def lock_name(pins: Pins, merged: MergedPolicy) -> ScalarNode:
    """Return the name of the lock; by default it lies beside the last file with `pins`."""
    section = merged.tree.get("pins")
    assert isinstance(section, MappingNode)  # noqa: S101 - else there would be no pins
    named = section.get("lock")
    if isinstance(named, ScalarNode):
        return named
    key = merged.tree.key_node("pins")
    return ScalarNode(key.source, key.start, key.end, "", pins.lock, pins.lock)


def check_pins(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report unknown patterns in `pins.finds`."""
    for index, name in enumerate(policy.pins.finds if policy.pins is not None else ()):
        yield from check_pattern_name(name, ("pins", "finds", index), policy, merged)
