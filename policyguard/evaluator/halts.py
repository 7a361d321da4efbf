"""Calls in a session that is halted."""

from __future__ import annotations

from policyguard.model.decision import Violation
from policyguard.model.effect import Effect

HALTED = "session/halted"
"""The violation of any call in a session that is halted, or whose ancestor is."""


def halt_violations(entry: str) -> list[Violation]:
    """Return the violation of a call in a session that `entry` has halted; empty for none."""
    if not entry:
        return []
    text, instead = (
        f"the run was halted by {entry}",
        "tell the user what was done and what is left to do",
    )
    return [Violation(HALTED, Effect.HALT, "halted", text, instead)]
