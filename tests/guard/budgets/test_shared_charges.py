"""What calls charge to shared budgets: beyond a limit, after a resumption, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from policyguard.store.memory.store import MemoryStore
from policyguard.store.quota.protocol import Quota
from tests.guard.budgets.test_shared_budgets import (
    CAPS,
    SECOND,
    Workspace,
    count_allowed,
    violation_text,
)
from tests.guard.journals.test_write_errors import locked_store


@pytest.mark.parametrize("rule", ["", "rules: {hm: {tools: [tool], effect: advise, message: m}}"])
def test_advised_calls_hold_slots_beyond_the_limit(tmp_path: Path, rule: str) -> None:
    workspace = Workspace(
        tmp_path, f"budgets: {{b: {{concurrent: 2, per: project, effect: advise}}}}\n{rule}"
    )
    one, two = workspace.session("one"), workspace.session("two")
    decisions = [one.check("tool", {"n": number}) for number in range(4)]
    assert violation_text(two.preview("tool", {})) == (
        "budget `b` is used up: 5 of 2 calls at once per project"
    )
    for decision in decisions:
        one.record(decision, result="")
    assert two.preview("other", {}).effect == "allow"


def test_costs_of_a_resumed_session_are_shared(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {cost: 1, per: project}}")
    with workspace.guard() as guard:
        one = guard.session("one", project="p")
        one.record(one.check("tool", {}), result="", cost=0.2)
    resumed, two = workspace.session("one"), workspace.session("two")
    resumed.record(resumed.check("tool", {}), result="", cost=0.9)
    assert violation_text(two.check("tool", {})) == (
        "budget `b` is used up: 1.1 of 1 spent per project"
    )


@pytest.mark.parametrize("first", ["calls: 20", "concurrent: 20"])
def test_call_that_the_second_budget_refuses_takes_nothing_from_the_first(
    tmp_path: Path, first: str
) -> None:
    workspace = Workspace(
        tmp_path,
        f"budgets:\n  all: {{{first}, per: project}}\n"
        "  few: {calls: 8, per: user, tools: [few]}\n",
    )
    one, two = workspace.session("one", user="u"), workspace.session("two", user="u")
    assert count_allowed(one, "few", max_calls=2) == 2
    assert count_allowed(two, "few") == 6
    assert one.check("few", {}).violations[0].id == "budgets/few"
    assert count_allowed(one, "many") + count_allowed(two, "many") == 12


@pytest.mark.parametrize(
    "few",
    [
        "{calls: 1, per: project, effect: advise}",
        "{calls: 1, per: project}\n"
        "exceptions: {free: {rules: [budgets/few], until: 2099-01-01, reason: r}}",
    ],
    ids=["advised", "waived"],
)
def test_call_beyond_one_budget_takes_the_rest_of_another_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: str
) -> None:
    workspace = Workspace(tmp_path, f"budgets:\n  all: {{calls: 10, per: project}}\n  few: {few}\n")
    one, two = workspace.session("one"), workspace.session("two")
    assert count_allowed(one, max_calls=9) == 9
    quotas, allowed = one.guard._shared_budgets._quotas, []
    try_charge_all = quotas.try_charge_all

    def let_two_call_if_it_fails(charges: Sequence[tuple[Quota, int]], at: int | None) -> bool:
        is_charged = try_charge_all(charges, at)
        if not is_charged:
            allowed.append(two.check("tool", {"n": "meanwhile"}).allowed)
        return is_charged

    monkeypatch.setattr(quotas, "try_charge_all", let_two_call_if_it_fails)
    allowed += [session.check("tool", {"n": "last"}).allowed for session in (one, two)]
    assert sum(allowed) == 1


def test_call_that_took_nothing_while_the_store_was_locked_stops_no_lease(tmp_path: Path) -> None:
    workspace = Workspace(
        tmp_path,
        "on_internal_error: allow\njournal: {durability: memory}\n"
        "budgets:\n  b: {calls: 100, per: project, tools: [tool]}\n"
        "  c: {sum: call.args.price, max: 9, per: project, tools: [paid]}\n",
    )
    session = workspace.session("one")
    assert count_allowed(session, max_calls=5) == 5
    session.guard._constraint_sync.store._database._timeout = 0.05
    with locked_store(tmp_path):
        assert [error.id for error in session.check("paid", {"price": 0}).errors] == ["internal"]
        assert session.check("tool", {"n": "more"}).errors == ()


def test_budget_is_shared_beside_one_of_the_session(tmp_path: Path) -> None:
    workspace = Workspace(
        tmp_path, "budgets: {own: {calls: 9, per: session}, all: {calls: 5, per: project}}"
    )
    one, two = workspace.session("one"), workspace.session("two")
    assert [count_allowed(one, max_calls=3), count_allowed(two)] == [3, 2]


def test_charges_of_a_resumed_session_are_not_counted_twice(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {calls: 9, per: project, effect: advise}}")
    with workspace.guard() as guard:
        for number in range(2):
            with guard.session("s", project="p") as session:
                decisions = [session.check("tool", {"n": number, "of": of}) for of in range(4)]
            assert {decision.effect for decision in decisions} == {"allow"}


@pytest.mark.parametrize("later", [0, 1800])
def test_usage_that_waits_for_the_store_is_as_late_as_the_latest_of_it(
    tmp_path: Path, later: int
) -> None:
    workspace = Workspace(
        tmp_path,
        "on_internal_error: allow\njournal: {durability: memory}\n"
        "budgets: {b: {calls: 2, per: project, within: 1h}}",
    )
    session = workspace.session("one")
    session.guard._constraint_sync.store._database._timeout = 0.05
    with locked_store(tmp_path):
        assert session.check("tool", {"n": 1}).errors
        workspace.clock.now += later * SECOND
        assert session.check("tool", {"n": 2}).errors
    workspace.clock.now += 3000 * SECOND
    assert not session.check("tool", {"n": 3}).allowed


def test_calls_within_a_lease_read_no_charges_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(caps=CAPS)
    workspace = Workspace(tmp_path, "budgets: {b: {calls: 1000, per: project}}")
    session = workspace.guard(store).session("s", project="p")
    reads, refresh = [], store.quotas.refresh
    monkeypatch.setattr(
        store.quotas,
        "refresh",
        lambda *args, **options: (reads.append(1), refresh(*args, **options)),
    )
    assert count_allowed(session, max_calls=30) == 30
    assert 0 < len(reads) < 15
