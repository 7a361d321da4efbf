"""Accounts: sums in windows, draws given back, nothing forgotten early."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policyguard.evaluator.account import Account, Book

WITHIN = 10


def _drawn(*draws: tuple[int, int], most: int = 100) -> Account:
    account = Account()
    for at, amount in draws:
        account.draw(amount, at, WITHIN, most)
    return account


def test_a_draw_leaves_the_window_exactly_when_it_is_over() -> None:
    account = _drawn((0, 3), (5, 4))
    assert [account.used_at(at, WITHIN) for at in (5, 9, 10, 14, 15)] == [7, 7, 4, 4, 0]
    account.draw(1, 10, WITHIN, 100)
    assert account.used == 5


def test_the_first_draw_starts_the_clock() -> None:
    account = _drawn((7, 0), (9, 1))
    assert account.start == 7


def test_what_is_given_back_is_the_draw_of_that_size() -> None:
    account = _drawn((0, 3), (5, 4), (6, 5))
    account.give_back(4)
    assert [account.used_at(at, WITHIN) for at in (6, 10, 15, 16)] == [8, 5, 5, 0]


def test_what_matches_no_draw_is_taken_from_the_oldest() -> None:
    account = _drawn((0, 3), (5, 4))
    account.draw(-5, 6, WITHIN, 100)
    assert [account.used_at(at, WITHIN) for at in (6, 10, 15)] == [2, 2, 0]
    account = _drawn((0, 3), (5, 4))
    account.give_back(1)
    assert [account.used_at(at, WITHIN) for at in (6, 10, 15)] == [6, 4, 0]


def test_when_enough_will_be_free() -> None:
    account = _drawn((0, 3), (5, 4))
    assert [account.frees_at(needed, WITHIN) for needed in (1, 3, 4, 7, 8)] == [
        10,
        10,
        15,
        15,
        None,
    ]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=20), st.integers(1, 4))
def test_merged_draws_are_forgotten_late_never_early(
    draws: list[tuple[int, int]], most: int
) -> None:
    exact, merged = _drawn(*sorted(draws)), _drawn(*sorted(draws), most=most)
    for at in range(30, 45):
        assert merged.used_at(at, WITHIN) >= exact.used_at(at, WITHIN)
    assert merged.draws is None or len(merged.draws) <= most
    assert merged.used_at(41, WITHIN) == 0


def test_a_book_opens_once_and_closes() -> None:
    book = Book()
    account = book.open("b", "k")
    assert book.open("b", "k") is account is book.get("b", "k")
    assert (book.size("b"), book.size("c")) == (1, 0)
    book.close("b", "k")
    assert book.get("b", "k") is None
