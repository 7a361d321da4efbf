"""Accounts: sums in windows, draws given back, nothing forgotten early."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from policyguard.evaluator.budgets.usage import BudgetUsage, UsageLedger

WITHIN = 10


def _drawn(*draws: tuple[int, int], most: int = 100) -> BudgetUsage:
    account = BudgetUsage()
    for at, amount in draws:
        account.charge(amount, at, WITHIN, most)
    return account


def test_a_draw_leaves_the_window_exactly_when_it_is_over() -> None:
    account = _drawn((0, 3), (5, 4))
    assert [account.used_at(at, WITHIN) for at in (5, 9, 10, 14, 15)] == [7, 7, 4, 4, 0]
    account.charge(1, 10, WITHIN, 100)
    assert account.used == 5


def test_the_first_draw_starts_the_clock() -> None:
    account = _drawn((7, 0), (9, 1))
    assert account.started_at == 7


def test_what_is_given_back_is_the_draw_of_that_size() -> None:
    account = _drawn((0, 3), (5, 4), (6, 5))
    account.refund(4, 5, WITHIN)
    assert [account.used_at(at, WITHIN) for at in (6, 10, 15, 16)] == [8, 5, 5, 0]


def test_what_matches_no_draw_is_taken_from_the_oldest() -> None:
    account = _drawn((0, 3), (5, 4))
    account.charge(-5, 6, WITHIN, 100)
    assert [account.used_at(at, WITHIN) for at in (6, 10, 15)] == [2, 2, 0]
    account = _drawn((0, 3), (5, 4))
    account.refund(1, 5, WITHIN)
    assert [account.used_at(at, WITHIN) for at in (6, 10, 15)] == [6, 4, 0]


def test_what_has_left_the_window_cannot_be_given_back() -> None:
    """Else a call that is released late would take the draws of others with it."""
    account = _drawn((0, 3), (15, 4))
    account.refund(3, 0, WITHIN)
    account.charge(-3, 5, WITHIN, 100)
    assert [account.used_at(at, WITHIN) for at in (15, 24, 25)] == [4, 4, 0]


def test_a_draw_that_is_given_back_leaves_the_later_one_of_another() -> None:
    account = _drawn((0, 3), (5, 3))
    account.refund(3, 0, WITHIN)
    assert [account.used_at(at, WITHIN) for at in (5, 14, 15)] == [3, 3, 0]
    account = _drawn((0, 3), (5, 3))
    account.refund(3, 5, WITHIN)
    assert [account.used_at(at, WITHIN) for at in (5, 9, 10)] == [3, 3, 0]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=20), st.randoms())
def test_draws_may_be_entered_in_any_order(draws: list[tuple[int, int]], random: Random) -> None:
    exact, entered = _drawn(*sorted(draws)), BudgetUsage()
    random.shuffle(draws)
    for at, amount in draws:
        entered.insert_charge(amount, at, WITHIN, 100)
    for at in range(30, 45):
        assert entered.used_at(at, WITHIN) == exact.used_at(at, WITHIN)


def test_a_copy_is_an_account_of_its_own() -> None:
    account = _drawn((0, 3), (5, 4))
    copy = account.copy()
    copy.charge(5, 6, WITHIN, 100)
    assert (account.used, copy.used, copy.started_at) == (7, 12, 0)
    assert account.charges != copy.charges


def test_when_enough_will_be_free() -> None:
    account = _drawn((0, 3), (5, 4))
    assert [account.fits_at(needed, WITHIN) for needed in (1, 3, 4, 7, 8)] == [
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
    assert merged.charges is None or len(merged.charges) <= most
    assert merged.used_at(41, WITHIN) == 0


def test_a_book_opens_once_and_closes() -> None:
    book = UsageLedger()
    account = book.get_or_create("b", "k")
    assert book.get_or_create("b", "k") is account is book.get("b", "k")
    assert (book.key_count("b"), book.key_count("c")) == (1, 0)
    book.remove("b", "k")
    assert book.get("b", "k") is None


def test_a_book_knows_how_many_accounts_a_store_has() -> None:
    book = UsageLedger()
    book.set("b", "k", account := BudgetUsage())
    assert book.get("b", "k") is account
    book.stored_key_counts["b"] = 0
    assert book.key_count("b") == 0
    book.stored_key_counts["b"] = 7
    assert (book.key_count("b"), book.key_count("c")) == (7, 0)
