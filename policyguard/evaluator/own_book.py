"""The book as a session that is rebuilt sees it: what its journal tells is not all drawn anew."""

from __future__ import annotations

from collections.abc import Mapping

from policyguard.evaluator.account import Account, Book
from policyguard.evaluator.budget import Budget
from policyguard.evaluator.paying import lasts, owner_of


class OwnBook(Book):
    """A book in which one session draws on its own accounts, and on those that all share.

    What a sub-agent drew from its ancestors' accounts stands in their journals (`Drawn`): draws on
    those are let fall. The accounts are those of the `book`.
    """

    __slots__ = ("_budgets", "_session")

    def __init__(self, book: Book, budgets: Mapping[str, Budget], session: str) -> None:
        self.accounts = book.accounts
        self.sizes = book.sizes
        self._budgets = budgets
        self._session = session

    def get(self, budget: str, key: str) -> Account | None:
        """The account, if anything was ever drawn or granted; of another session an empty one."""
        return Account() if self._anothers(budget, key) else super().get(budget, key)

    def open(self, budget: str, key: str) -> Account:
        """The account, made where it is new; of another session one that nobody keeps."""
        return Account() if self._anothers(budget, key) else super().open(budget, key)

    def _anothers(self, budget: str, key: str) -> bool:
        known = self._budgets.get(budget)
        return known is not None and lasts(known) and owner_of(key) != self._session
