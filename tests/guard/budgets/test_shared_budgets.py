"""Budgets per agent, user, project or global are shared by all guards of a store."""

from __future__ import annotations

import gc
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.guard.budgets.shared import SharedBudgets
from policyguard.guard.session import Session
from policyguard.model.decision import Decision
from policyguard.store.errors import StoreError
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Caps, Store

CAPS = Caps(constraints=100, grants=100, evidence=100, anchors=100)
SECOND = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


class Workspace:
    """Guards of one policy on one store, each loaded like in its own process."""

    def __init__(self, folder: Path, policy: str, *, name: str = "shared") -> None:
        self.clock = Clock()
        self.store = folder / "state" / "store.db"
        self.file = folder / f"{name}.yaml"
        self.file.write_text(f"policyguard: 1\nname: {name}\n{policy}")

    def guard(self, store: Store | None = None) -> Guard:
        return Guard.load(self.file, store=store or self.store, clock=self.clock)

    def session(self, session_id: str, **options: str) -> Session:
        return self.guard().session(session_id, **{"project": "p", **options})


def count_allowed(session: Session, tool: str = "tool", max_calls: int = 10_000) -> int:
    """Return how many more calls are allowed."""
    count = 0
    while count < max_calls and session.check(tool, {"n": count}).allowed:
        count += 1
    return count


def forget_others(session: Session) -> None:
    """Make a guard read the charges of others again, as it does after a second."""
    session.guard._shared_budgets.invalidate()


def violation_text(decision: Decision) -> str:
    return decision.violations[0].text


@pytest.mark.parametrize(
    ("scope", "same", "other"),
    [
        ("agent", {"agent": "a"}, {"agent": "b"}),
        ("user", {"user": "a"}, {"user": "b"}),
        ("project", {"project": "a"}, {"project": "b"}),
        ("global", {}, None),
    ],
)
def test_budget_is_shared_by_all_guards_in_its_scope(
    tmp_path: Path, scope: str, same: dict[str, str], other: dict[str, str] | None
) -> None:
    workspace = Workspace(tmp_path, f"budgets: {{b: {{calls: 100, per: {scope}}}}}")
    one, two = workspace.session("one", **same), workspace.session("two", **same)
    assert count_allowed(one, max_calls=30) == 30
    assert count_allowed(two) == 70
    refused = one.check("tool", {})
    assert violation_text(refused) == f"budget `b` is used up: 100 of 100 calls per {scope}"
    if other is not None:
        assert count_allowed(workspace.session("three", **other)) == 100


def test_session_budgets_are_not_shared(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {calls: 10}, t: {calls: 5, per: turn}}")
    one, two = workspace.session("one"), workspace.session("two")
    assert (count_allowed(one), count_allowed(two)) == (5, 5)
    assert one.guard._shared_budgets is None
    assert not (tmp_path / "state" / "store.db.purses").exists()


def test_quota_outlives_its_guards(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {calls: 10, per: project}}")
    assert count_allowed(workspace.session("one"), max_calls=4) == 4
    assert count_allowed(workspace.session("two")) == 6
    assert count_allowed(workspace.session("three")) == 0


def test_policies_have_separate_budgets(tmp_path: Path) -> None:
    one = Workspace(tmp_path, "budgets: {b: {calls: 3, per: global}}", name="one")
    two = Workspace(tmp_path, "budgets: {b: {calls: 5, per: global}}", name="two")
    assert (count_allowed(one.session("a")), count_allowed(two.session("b"))) == (3, 5)


def test_memory_store_is_shared_by_its_guards(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {calls: 100, per: project}}")
    store = MemoryStore(caps=CAPS)
    one, two = (workspace.guard(store).session(name, project="p") for name in ("one", "two"))
    assert count_allowed(one, max_calls=30) == 30
    assert count_allowed(two) == 70


def test_released_call_is_refunded_for_all_guards(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {calls: 10, per: project}}")
    one, two = workspace.session("one"), workspace.session("two")
    decisions = [one.check("tool", {"n": number}) for number in range(6)]
    assert count_allowed(two) == 4
    for decision in decisions[:4]:
        one.release(decision)
        one.release(decision)
    one.record(decisions[5], result="fine")
    assert count_allowed(two) == 4
    assert count_allowed(one) == 0


def test_grant_applies_to_all_guards(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {calls: 10, per: project}}")
    one, two = workspace.session("one"), workspace.session("two")
    assert count_allowed(one) == 10
    assert not two.check("tool", {}).allowed
    two.grant("b", 5, by="ann")
    assert count_allowed(one) == 5
    assert (
        violation_text(two.check("tool", {})) == "budget `b` is used up: 15 of 15 calls per project"
    )


def test_approval_extends_the_budget_for_all_guards(tmp_path: Path) -> None:
    workspace = Workspace(
        tmp_path, "budgets: {b: {calls: 3, per: project, effect: ask, extend: 2}}"
    )
    one, two = workspace.session("one"), workspace.session("two")
    assert count_allowed(one) == 3
    decision = one.check("tool", {"n": "more"})
    assert one.approve(decision, by="ann")
    assert one.check("tool", {"n": "more"}).allowed
    assert count_allowed(two) == 1


def test_approved_call_is_charged_beyond_the_limit(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {calls: 3, per: project, effect: ask}}")
    one, two = workspace.session("one"), workspace.session("two")
    assert count_allowed(one) == 3
    one.approve(one.check("tool", {"n": "more"}), by="ann")
    assert one.check("tool", {"n": "more"}).allowed
    assert (
        violation_text(two.check("tool", {})) == "budget `b` is used up: 4 of 3 calls per project"
    )


def test_advised_calls_are_charged_beyond_the_limit(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {calls: 3, per: project, effect: advise}}")
    one, two = workspace.session("one"), workspace.session("two")
    assert count_allowed(one, max_calls=20) == 20
    advised = two.check("tool", {})
    assert advised.allowed
    assert violation_text(advised) == "budget `b` is used up: 21 of 3 calls per project"


def test_advice_threshold_keeps_the_budget_exact(tmp_path: Path) -> None:
    budget = "sum: call.args.n, max: 10, advise_at: 2"
    workspace = Workspace(tmp_path, f"budgets: {{b: {{{budget}, per: project}}}}")
    sessions = [workspace.session(f"s{number}") for number in range(4)]
    used = 0
    for amount in (1, 3, 3):
        for session in sessions:
            used += amount * session.check("tool", {"n": amount}).allowed
    assert used == 10


def test_calls_in_observe_mode_are_charged(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "mode: observe\nbudgets: {b: {calls: 3, per: project}}")
    assert count_allowed(workspace.session("one"), max_calls=20) == 20
    assert workspace.session("two").check("tool", {}).would[0].used == 20


def test_thresholds_count_the_charges_of_others(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {calls: 10, per: project, advise_at: 8}}")
    assert count_allowed(workspace.session("one"), max_calls=6) == 6
    two = workspace.session("two")
    assert two.check("tool", {"n": 1}).effect == "allow"
    assert two.check("tool", {"n": 2}).effect == "advise"
    assert count_allowed(two) == 2, "a threshold does not raise the limit"


@pytest.mark.parametrize(
    ("budget", "granted"),
    [("calls: 2, per: project", 0), ("calls: 1, per: [project, call.args.key]", 1)],
)
def test_what_is_left_of_a_budget_is_taken_once(tmp_path: Path, budget: str, granted: int) -> None:
    workspace = Workspace(tmp_path, f"budgets: {{b: {{{budget}, advise_at: 1}}}}")
    one, two = workspace.session("one"), workspace.session("two")
    if granted:
        one.grant("b", granted, by="ann")
    allowed = [
        session.check("tool", {"key": "a", "n": number}).allowed
        for number, session in enumerate((one, two, one))
    ]
    assert allowed == [True, True, False]


def test_call_charges_all_its_budgets_or_none(tmp_path: Path) -> None:
    workspace = Workspace(
        tmp_path,
        """
budgets:
  all: {calls: 100, per: project}
  few: {calls: 4, per: user, tools: [few]}
  places: {concurrent: 5, per: global}
""",
    )
    one, two = workspace.session("one", user="u"), workspace.session("two", user="u")
    assert count_allowed(one, "few", max_calls=2) == 2
    assert count_allowed(two, "few") == 2
    assert count_allowed(one, "few") == 0
    assert count_allowed(two, "many") == 1, "five run at once"
    assert two.check("many", {}).violations[0].id == "budgets/places"
    two.record("c1", result="")
    assert count_allowed(one, "many") == 1


def test_slots_are_freed_for_all_guards(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {concurrent: 3, per: project}}")
    one, two = workspace.session("one"), workspace.session("two")
    decisions = [one.check("tool", {"n": number}) for number in range(3)]
    assert not two.check("tool", {}).allowed
    one.record(decisions[0], result="")
    one.release(decisions[1])
    assert count_allowed(two) == 2
    two.end()
    assert count_allowed(one) == 2


def test_unreported_call_frees_its_slot(tmp_path: Path) -> None:
    workspace = Workspace(
        tmp_path, "bounds: {unreported: 1m}\nbudgets: {b: {concurrent: 2, per: project}}"
    )
    one, two = workspace.session("one"), workspace.session("two")
    assert count_allowed(one) == 2
    workspace.clock.now += 61 * SECOND
    assert not two.check("tool", {}).allowed
    assert not one.check("tool", {}).allowed, "but the oldest call is abandoned for it"
    assert count_allowed(two) == 1
    one.end()
    assert count_allowed(two) == 1


def test_later_costs_of_all_guards_are_in_the_refusal(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {cost: 1.0, per: project}}")
    one, two = workspace.session("one"), workspace.session("two")
    for session in (one, two, one):
        session.record(session.check("tool", {}), result="", cost=0.3)
    running = two.check("tool", {})
    assert running.allowed
    one.spend(cost=0.05)
    two.record(running, result="", cost=0.2)
    forget_others(one)
    refused = one.check("tool", {})
    assert violation_text(refused) == "budget `b` is used up: 1.15 of 1 spent per project"


def test_costs_of_other_guards_are_known_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {tokens: 100, per: project}}")
    now = [1000.0]
    monkeypatch.setattr("policyguard.guard.budgets.shared.monotonic", lambda: now[0])
    one, two = workspace.session("one"), workspace.session("two")
    assert two.check("tool", {}).allowed
    one.record(one.check("tool", {}), result="", tokens=500)
    now[0] += 1.01
    assert not two.check("tool", {}).allowed


def test_reservation_is_held_until_the_cost_is_known(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {cost: 1.0, per: project, reserve: 0.4}}")
    one, two = workspace.session("one"), workspace.session("two")
    first, second = one.check("tool", {"n": 1}), two.check("tool", {"n": 2})
    assert first.allowed
    assert second.allowed
    assert not one.check("tool", {"n": 3}).allowed
    one.record(first, result="", cost=0.1)
    third = two.check("tool", {"n": 4})
    assert third.allowed
    two.release(second)
    two.record(third, result="", cost=0.3)
    assert one.check("tool", {}, estimate={"cost": 0.6}).allowed
    assert not two.check("tool", {}, estimate={"cost": 0.01}).allowed


def test_sums_over_outcomes_are_shared(tmp_path: Path) -> None:
    workspace = Workspace(
        tmp_path,
        "budgets:\n  fails: {calls: 2, per: project, when: '!outcome.ok'}\n"
        "  chars: {sum: outcome.chars, max: 100, per: project}\n",
    )
    one, two = workspace.session("one"), workspace.session("two")
    one.record(one.check("tool", {"n": 1}), result="x" * 10)
    one.record(one.check("tool", {"n": 2}), error="no")
    two.record(two.check("tool", {"n": 3}), error="no way")
    forget_others(one)
    refused = one.check("tool", {"n": 4})
    assert refused.violations[0].id == "budgets/fails"
    assert refused.violations[0].used == 2


def test_sums_over_arguments_never_overshoot(tmp_path: Path) -> None:
    workspace = Workspace(
        tmp_path, "budgets: {b: {sum: double(call.args.n), max: 10, per: project}}"
    )
    one, two = workspace.session("one"), workspace.session("two")
    allowed = [
        session.check("tool", {"n": number}).allowed
        for session, number in [(one, 4.5), (two, 4.5), (one, 1.5), (two, 1), (one, 0.1)]
    ]
    assert allowed == [True, True, False, True, False]
    huge = workspace.session("huge", project="q")
    assert not huge.check("tool", {"n": 1e300}).allowed
    assert count_allowed(workspace.session("three"), max_calls=3) == 1  # an amount of 0


def test_window_is_shared(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {calls: 10, per: project, within: 1m}}")
    one, two = workspace.session("one"), workspace.session("two")
    assert count_allowed(one, max_calls=4) == 4
    workspace.clock.now += 30 * SECOND
    assert count_allowed(two) == 6
    refused = one.check("tool", {})
    assert refused.violations[0].retry_after == pytest.approx(30, abs=1)
    workspace.clock.now += 30 * SECOND
    assert count_allowed(one) == 4
    workspace.clock.now += 30 * SECOND
    assert count_allowed(two) == 6


def test_charges_of_others_are_read_while_the_store_is_locked(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {calls: 1000, per: project, within: 1h}}")
    one, two = workspace.session("one"), workspace.session("two")
    assert [count_allowed(session, max_calls=5) for session in (one, two, one)] == [5, 5, 5]
    with closing(sqlite3.connect(workspace.store, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        forget_others(two)
        assert two.check("tool", {"n": "more"}).allowed


def test_time_budget_starts_with_the_first_call_in_the_scope(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {time: 1h, per: project}}")
    one = workspace.session("one")
    assert one.check("tool", {}).allowed
    workspace.clock.now += 3599 * SECOND
    assert workspace.session("two").check("tool", {}).allowed
    workspace.clock.now += SECOND
    assert not workspace.session("three").check("tool", {}).allowed
    one.grant("b", 60, by="ann")
    assert workspace.session("four").check("tool", {}).allowed


def test_keys_are_charged_separately_and_capped(tmp_path: Path) -> None:
    workspace = Workspace(
        tmp_path,
        "bounds: {budget_keys: 3}\n"
        "budgets: {b: {calls: 2, per: [project, call.args.order], within: 1h}}",
    )
    one, two = workspace.session("one"), workspace.session("two")

    def check(session: Session, order: str) -> Decision:
        return session.check("tool", {"order": order})

    assert check(one, "a").allowed
    assert check(two, "a").allowed
    assert not check(one, "a").allowed
    assert check(one, "b").allowed
    assert check(two, "c").allowed
    for session in (one, two):
        refused = check(session, "d")
        assert violation_text(refused) == "the budget has too many different keys"
        assert not session.preview("tool", {"order": "e"}).allowed
    one.grant("b", 1, by="ann")
    assert check(two, "a").allowed
    assert not check(one, "a").allowed
    workspace.clock.now += 3601 * SECOND
    assert check(two, "d").allowed, "expired keys make room"
    assert check(one, "d").allowed


def test_open_quotas_stay_within_the_bounds(tmp_path: Path) -> None:
    workspace = Workspace(
        tmp_path, "bounds: {budget_keys: 20}\nbudgets: {b: {calls: 3, per: project}}"
    )
    guard = workspace.guard()
    for number in range(50):
        assert count_allowed(guard.session(f"s{number}", project=f"p{number}"), max_calls=2) == 2
    assert len(guard._shared_budgets._open_quotas) <= 20
    assert len(guard._state.evaluator_state.ledger.usages["budgets/b"]) <= 20
    assert count_allowed(guard.session("again", project="p0")) == 1


def test_preview_charges_no_lease(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {calls: 100, per: project}}")
    one, two = workspace.session("one"), workspace.session("two")
    assert count_allowed(one, max_calls=10) == 10
    assert all(one.preview("tool", {}).allowed for _ in range(50))
    assert count_allowed(two) == 90


def test_preview_agrees_with_check_and_changes_nothing(tmp_path: Path) -> None:
    workspace = Workspace(
        tmp_path, "budgets: {b: {calls: 2, per: project}, t: {time: 1h, per: project}}"
    )
    one, two = workspace.session("one"), workspace.session("two")
    assert all(two.preview("tool", {}).allowed for _ in range(5))
    workspace.clock.now += 7200 * SECOND
    assert count_allowed(one) == 2
    assert not two.preview("tool", {}).allowed
    assert violation_text(two.preview("tool", {})) == violation_text(one.check("tool", {}))


def test_resumed_session_charges_nothing_twice(tmp_path: Path) -> None:
    workspace = Workspace(
        tmp_path,
        "budgets: {b: {calls: 10, per: project}, c: {cost: 2, per: project, reserve: 0.1}, "
        "o: {concurrent: 3, per: project}}",
    )
    first = workspace.guard()
    one = first.session("one", project="p")
    for _ in range(2):
        one.record(one.check("tool", {}), result="", cost=0.2)
    one.check("tool", {"left": "running"})
    one.grant("b", 1, by="ann")
    first._open_sessions.remove("one")  # as if the process had died
    first._journal.close()
    del first, one
    gc.collect()

    guard = workspace.guard()
    other = guard.session("two", project="p")
    assert other.preview("tool", {}).allowed
    reopened = guard.session("one", project="p")
    assert other.check("tool", {}).allowed
    usage = guard._state.evaluator_state.ledger.get("budgets/b", "p")
    assert (usage.used, usage.granted) == (4 * SECOND, SECOND)
    reopened.record("c3", result="", cost=0.3)
    assert count_allowed(other) == 2, "three slots, none held by the dead session"
    assert other.check("tool", {}).violations[0].used == 3


def test_no_lease_is_charged_while_usage_is_unwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(
        tmp_path,
        "budgets: {b: {calls: 100, per: project}, t: {tokens: 50, per: project, tools: [paid]}}",
    )
    one, two = workspace.session("one"), workspace.session("two")
    assert count_allowed(one, max_calls=10) == 10
    paid = one.check("paid", {})

    def fail(*args: object) -> None:
        raise StoreError(workspace.store, "it is full", "make room")

    with monkeypatch.context() as patch:
        patch.setattr(SharedBudgets, "_write_usage", fail)
        one.record(paid, result="", tokens=60)
        refused = one.check("tool", {})
    assert not refused.allowed
    assert "it is full" in refused.errors[0].error
    assert one.check("tool", {}).allowed
    assert not two.check("paid", {}).allowed


def test_locked_store_is_reported_and_no_charge_is_lost(tmp_path: Path) -> None:
    for mode in ("block", "allow"):
        (tmp_path / mode).mkdir()
        workspace = Workspace(
            tmp_path / mode,
            f"on_internal_error: {mode}\n"
            "journal: {durability: memory}\nbudgets: {b: {calls: 10, per: project}}",
        )
        one, two = workspace.session("one"), workspace.session("two")
        for session in (one, two):
            session.guard._constraint_sync.store._database._timeout = 0.05
        assert count_allowed(one, max_calls=1) == 1
        one.guard._constraint_sync.store.close()
        connection = sqlite3.connect(workspace.store, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        failed = one.check("tool", {})
        assert failed.allowed == (mode == "allow")
        assert "locked by another process" in failed.errors[0].error
        assert not any("Traceback" in error.error for error in failed.errors)
        failed_again = one.check("tool", {})
        assert failed_again.allowed == failed.allowed
        assert "is still locked by another process" in failed_again.errors[0].error
        connection.execute("COMMIT")
        connection.close()
        assert one.check("tool", {}).allowed
        assert count_allowed(two) == (6 if mode == "allow" else 8)


def test_an_error_before_the_budget_is_reported_whatever_the_store_answers(tmp_path: Path) -> None:
    policy = (
        "on_internal_error: allow\n"
        "classify: {classes: [{class: mail, tools: [tool], when: call.args.n > 1}]}\n"
        "budgets: {b: {calls: 1, per: project}}"
    )
    session = Workspace(tmp_path, policy).session("s")
    for allowed in (True, False):
        decision = session.check("tool", {"n": "many"})
        assert decision.allowed is allowed
        assert [error.id for error in decision.errors] == ["classify/classes/mail"]


def test_only_a_budget_of_time_is_raised_by_a_duration(tmp_path: Path) -> None:
    session = Workspace(tmp_path, "budgets: {b: {calls: 1}, t: {time: 1m}}").session("one")
    with pytest.raises(TypeError, match=r"`amount` is .*, of type `timedelta`, not a number"):
        session.grant("b", timedelta(seconds=5), by="ann")
    session.grant("t", timedelta(seconds=5), by="ann")
    assert count_allowed(session) == 1
    session.grant("b", 2, by="ann")
    assert count_allowed(session) == 2
