"""Entries of a policy that make sessions depend on each other."""

from __future__ import annotations

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.entry_paths import learn_id

_ISOLATED_SCOPES = frozenset({"turn", "session"})


def find_shared_entries(compiled: CompiledPolicy) -> tuple[str, ...]:
    """Return the ids of entries through which one session's calls affect another's.

    These are budgets and learning with a scope of agent, user, project or global. Without any,
    each session can be replayed on its own, together with its sub-agents.
    """
    budgets = [
        f"budgets/{budget.id}"
        for budget in compiled.policy.budgets
        if budget.per.scope not in _ISOLATED_SCOPES
    ]
    learned = [
        learn_id(entry.name)
        for entry in compiled.learning.values()
        if entry.scope not in _ISOLATED_SCOPES
    ]
    return (*budgets, *learned)
