"""The names that a policy's shared budgets have in a store, and what a store must know of them."""

from __future__ import annotations

import re
from typing import NamedTuple

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.store.quota.protocol import QuotaSpec

_NAME = lazy_pattern(r"(.*?)/(budgets/.+): (\w+) per (\w+)( in a window)?", re.DOTALL)

_ANY_WINDOW = 2**62
"""Stands for a window of unknown length (ns): a store knows only that there is one."""


class QuotaName(NamedTuple):
    """A budget's quotas are named after its policy, kind, scope and window.

    Another policy may have a budget of the same name, and a changed one starts anew.
    """

    policy: str
    budget: str
    kind: str
    scope: str
    is_windowed: bool

    def __str__(self) -> str:
        window = " in a window" if self.is_windowed else ""
        return f"{self.policy}/{self.budget}: {self.kind} per {self.scope}{window}"


def parse_quota_name(name: str) -> QuotaName | None:
    """Return the parts of a name; None for one of another program."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    policy, budget, kind, scope, window = found.groups()
    return QuotaName(policy, budget, kind, scope, window is not None)


def guess_spec(name: QuotaName | None) -> QuotaSpec:
    """Return what a name says about its quotas; nothing for one of another program."""
    if name is None:
        return QuotaSpec(limit=0)
    counts_slots = name.kind == "concurrent"
    return QuotaSpec(
        limit=0,
        within=_ANY_WINDOW if name.is_windowed else None,
        reserves=counts_slots,
        counts_slots=counts_slots,
    )


def quota_spec(budget: CompiledBudget) -> QuotaSpec:
    """Return what a store must know of a budget."""
    counts_slots = budget.kind == "concurrent"
    return QuotaSpec(
        limit=budget.max,
        within=budget.within,
        reserves=counts_slots or budget.post_paid,
        counts_slots=counts_slots,
        max_charges=budget.max_charges,
        max_keys=budget.max_keys,
    )
