"""The book as a session that is rebuilt sees it: what its journal tells is not all drawn anew."""

from __future__ import annotations

from collections.abc import Mapping

from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.budgets.charges import outlives_call, owner_session
from policyguard.evaluator.budgets.usage import BudgetUsage, UsageLedger


class RebuildLedger(UsageLedger):
    """A book in which one session draws on its own accounts, and on those that all share.

    What a sub-agent drew from its ancestors' accounts stands in their journals (`Drawn`): draws on
    those are let fall. The accounts are those of the `book`.
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
        """The account, if anything was ever drawn or granted; of another session an empty one."""
        return BudgetUsage() if self._is_foreign(budget, key) else super().get(budget, key)

    def get_or_create(self, budget: str, key: str) -> BudgetUsage:
        """The account, made where it is new; of another session one that nobody keeps."""
        return (
            BudgetUsage() if self._is_foreign(budget, key) else super().get_or_create(budget, key)
        )

    def _is_foreign(self, budget: str, key: str) -> bool:
        known = self._budgets.get(budget)
        return known is not None and outlives_call(known) and owner_session(key) != self._session
