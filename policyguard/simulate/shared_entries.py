"""Which recorded sessions have to do with each other: through which entries of a policy."""

from __future__ import annotations

from policyguard.compiler import CompiledPolicy

_ISOLATED_SCOPES = frozenset({"turn", "session"})


def find_shared_entries(compiled: CompiledPolicy) -> tuple[str, ...]:
    """The entries of a policy by which one session's calls bear on another's.

    Budgets of an agent, a user, a project or of all, and what is learned for one of these. Where
    there is none, only a session and the sub-agents below it have to do with each other: each such
    tree can be replayed on its own.
    """
    budgets = [
        f"budgets/{budget.id}"
        for budget in compiled.policy.budgets
        if budget.per.scope not in _ISOLATED_SCOPES
    ]
    learned = [
        f"signatures/{entry.name}/learn" if entry.name else "learn"
        for entry in compiled.learning.values()
        if entry.scope not in _ISOLATED_SCOPES
    ]
    return (*budgets, *learned)
