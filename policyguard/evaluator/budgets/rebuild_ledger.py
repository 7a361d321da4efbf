"""The ledger for rebuilding a session from its journal, whose charges are not all made anew."""

from __future__ import annotations

from collections.abc import Mapping

from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.budgets.charges import outlives_call, owner_session
from policyguard.evaluator.budgets.usage import BudgetUsage, UsageLedger


class RebuildLedger(UsageLedger):
    """A view of a ledger that drops what a session charged to its ancestors.

    The ancestors' own journals hold those charges (`ChildCharged`).
    """

    __slots__ = ("_budgets", "_session")

    def __init__(
        self, ledger: UsageLedger, budgets: Mapping[str, CompiledBudget], session: str
    ) -> None:
        self.usages = ledger.usages
        self.stored_key_counts = ledger.stored_key_counts
        self._budgets = budgets
        self._session = session

    def get(self, budget: str, key: str) -> BudgetUsage | None:
        """Return the usage; of another session an empty one."""
        return BudgetUsage() if self._is_foreign(budget, key) else super().get(budget, key)

    def get_or_create(self, budget: str, key: str) -> BudgetUsage:
        """Return the usage, new where there is none; of another session one that is not kept."""
        return (
            BudgetUsage() if self._is_foreign(budget, key) else super().get_or_create(budget, key)
        )

    def _is_foreign(self, budget: str, key: str) -> bool:
        compiled = self._budgets.get(budget)
        if compiled is None or not outlives_call(compiled):
            return False
        return owner_session(key) != self._session
