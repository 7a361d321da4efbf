"""Budget usage: sums over windows, refunds and expiry."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from policyguard.evaluator.budgets.usage import BudgetUsage, UsageLedger

WITHIN = 10


def _usage_of(*charges: tuple[int, int], max_charges: int = 100) -> BudgetUsage:
    usage = BudgetUsage()
    for at, amount in charges:
        usage.charge(amount, at, WITHIN, max_charges)
    return usage


def test_charge_expires_exactly_at_the_end_of_the_window() -> None:
    usage = _usage_of((0, 3), (5, 4))
    assert [usage.used_at(at, WITHIN) for at in (5, 9, 10, 14, 15)] == [7, 7, 4, 4, 0]
    usage.charge(1, 10, WITHIN, 100)
    assert usage.used == 5


def test_first_charge_starts_the_clock() -> None:
    usage = _usage_of((7, 0), (9, 1))
    assert usage.started_at == 7


def test_refund_removes_the_charge_of_that_amount() -> None:
    usage = _usage_of((0, 3), (5, 4), (6, 5))
    usage.refund(4, 5, WITHIN)
    assert [usage.used_at(at, WITHIN) for at in (6, 10, 15, 16)] == [8, 5, 5, 0]


def test_refund_without_a_match_reduces_the_oldest_charge() -> None:
    usage = _usage_of((0, 3), (5, 4))
    usage.charge(-5, 6, WITHIN, 100)
    assert [usage.used_at(at, WITHIN) for at in (6, 10, 15)] == [2, 2, 0]
    usage = _usage_of((0, 3), (5, 4))
    usage.refund(1, 5, WITHIN)
    assert [usage.used_at(at, WITHIN) for at in (6, 10, 15)] == [6, 4, 0]


def test_expired_charge_cannot_be_refunded() -> None:
    """Otherwise a late release would refund the charges of other calls."""
    usage = _usage_of((0, 3), (15, 4))
    usage.refund(3, 0, WITHIN)
    usage.charge(-3, 5, WITHIN, 100)
    assert [usage.used_at(at, WITHIN) for at in (15, 24, 25)] == [4, 4, 0]


def test_refund_keeps_an_equal_charge_made_at_another_time() -> None:
    usage = _usage_of((0, 3), (5, 3))
    usage.refund(3, 0, WITHIN)
    assert [usage.used_at(at, WITHIN) for at in (5, 14, 15)] == [3, 3, 0]
    usage = _usage_of((0, 3), (5, 3))
    usage.refund(3, 5, WITHIN)
    assert [usage.used_at(at, WITHIN) for at in (5, 9, 10)] == [3, 3, 0]


def test_refund_of_a_charge_made_ahead_removes_that_one() -> None:
    usage = _usage_of((0, 3))
    for charged_at in (50, 60):
        usage.add_ahead(charged_at, 1, 2, max_charges=9)
    usage.refund(2, 60, WITHIN)
    assert ([one.at for one in usage.ahead], usage.used) == ([50], 5)
    usage.refund(3, 0, WITHIN)  # none ahead is of this time
    assert ([one.at for one in usage.ahead], usage.used) == ([50], 2)


def test_refund_at_an_unknown_time_removes_a_charge_of_that_amount() -> None:
    usage = _usage_of((0, 3), (5, 4))
    usage.refund(4, None, WITHIN)
    assert [usage.used_at(at, WITHIN) for at in (6, 10)] == [3, 0]


def test_refund_without_a_window() -> None:
    usage = BudgetUsage()
    usage.charge(3, 5, None, 100)
    usage.refund(2, 5, None)
    assert usage.used == 1


def test_refund_to_a_budget_that_has_no_window_any_more() -> None:
    usage = _usage_of((1, 10), (2, 20))
    usage.refund(10, 1, None)
    assert usage.used == 20


def test_charge_that_has_just_left_the_window_cannot_be_refunded() -> None:
    usage = _usage_of((5, 3), (15, 4))
    usage.refund(3, 5, WITHIN)
    assert usage.used == 4


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=20), st.randoms())
def test_charges_can_be_inserted_in_any_order(
    charges: list[tuple[int, int]], random: Random
) -> None:
    exact, inserted = _usage_of(*sorted(charges)), BudgetUsage()
    random.shuffle(charges)
    for at, amount in charges:
        inserted.insert_charge(amount, at, WITHIN, 100)
    for at in range(30, 45):
        assert inserted.used_at(at, WITHIN) == exact.used_at(at, WITHIN)


def test_copy_is_independent() -> None:
    usage = _usage_of((0, 3), (5, 4))
    copy = usage.copy()
    copy.charge(5, 6, WITHIN, 100)
    assert (usage.used, copy.used, copy.started_at) == (7, 12, 0)
    assert usage.charges != copy.charges


def test_time_at_which_an_amount_fits() -> None:
    usage = _usage_of((0, 3), (5, 4))
    assert [usage.fits_at(needed, WITHIN, 0) for needed in (1, 3, 4, 7, 8)] == [
        10,
        10,
        15,
        15,
        None,
    ]
    usage = BudgetUsage()
    usage.add_ahead(50, 1, 2, max_charges=9)
    assert [usage.fits_at(needed, WITHIN, 5) for needed in (2, 3)] == [11, None]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=20), st.integers(1, 4))
def test_merged_charges_expire_late_but_never_early(
    charges: list[tuple[int, int]], max_charges: int
) -> None:
    exact, capped = (
        _usage_of(*sorted(charges)),
        _usage_of(*sorted(charges), max_charges=max_charges),
    )
    for at in range(30, 45):
        assert capped.used_at(at, WITHIN) >= exact.used_at(at, WITHIN)
    assert capped.charges is None or len(capped.charges) <= max_charges
    assert capped.used_at(41, WITHIN) == 0


def test_ledger_creates_a_usage_once_and_removes_it() -> None:
    ledger = UsageLedger()
    usage = ledger.get_or_create("b", "k")
    assert ledger.get_or_create("b", "k") is usage is ledger.get("b", "k")
    assert (ledger.key_count("b"), ledger.key_count("c")) == (1, 0)
    ledger.remove("b", "k")
    assert ledger.get("b", "k") is None


def test_ledger_counts_keys_of_the_store() -> None:
    ledger = UsageLedger()
    ledger.set("b", "k", usage := BudgetUsage())
    assert ledger.get("b", "k") is usage
    ledger.stored_key_counts["b"] = 0
    assert ledger.key_count("b") == 0
    ledger.stored_key_counts["b"] = 7
    assert (ledger.key_count("b"), ledger.key_count("c")) == (7, 0)


def test_a_charge_older_than_the_window_counts_for_nothing() -> None:
    usage = _usage_of((20, 3))
    usage.insert_charge(4, 10, WITHIN, 100)
    usage.insert_charge(5, 11, WITHIN, 100)
    assert [usage.used_at(at, WITHIN) for at in (20, 21, 29, 30)] == [8, 3, 3, 0]


def test_charges_ahead_that_are_merged_stay_as_long_as_the_later() -> None:
    usage = BudgetUsage()
    usage.add_ahead(50, 1, 2, max_charges=2)
    usage.add_ahead(60, 2, 3, max_charges=2)
    usage.add_ahead(70, 3, 4, max_charges=2)
    assert [(one.at, one.seen_at, one.amount) for one in usage.ahead] == [(60, 2, 5), (70, 3, 4)]
