"""Answers to one question about texts, each found once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from policyguard.model.shell import ShellBounds

T = TypeVar("T")


def keep_answers(find: Callable[[str], T], bounds: ShellBounds) -> Callable[[str], T]:
    """Return `find` with its latest answers kept, but for long texts. Safe to share by threads."""
    max_chars = bounds.chars
    find_kept = lru_cache(bounds.texts)(find)

    def answer(text: str) -> T:
        return find_kept(text) if len(text) <= max_chars else find(text)

    return answer
