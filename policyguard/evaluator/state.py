"""All that is known at a moment: the sessions, and the book of budgets they share."""

from __future__ import annotations

from policyguard.evaluator.account import Book
from policyguard.evaluator.session import SessionState


class State:
    """What the events so far amount to. Changed by `fold` alone."""

    __slots__ = ("book", "sessions")

    def __init__(self) -> None:
        self.sessions: dict[str, SessionState] = {}
        self.book = Book()
