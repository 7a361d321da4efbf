"""Budgets of agents, users, projects and everybody count for all guards of one store."""

from __future__ import annotations

import gc
import sqlite3
from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.guard.session import Session
from policyguard.model.decision import Decision
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Caps, Store

CAPS = Caps(constraints=100, evidence=100, anchors=100)
SECOND = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


class Office:
    """Guards of one policy on one store, each as another process would have it."""

    def __init__(self, folder: Path, policy: str, *, name: str = "office") -> None:
        self.clock = Clock()
        self.store = folder / "state" / "store.db"
        self.file = folder / f"{name}.yaml"
        self.file.write_text(f"policyguard: 1\nname: {name}\n{policy}")

    def guard(self, store: Store | None = None) -> Guard:
        return Guard.load(self.file, store=store or self.store, clock=self.clock)

    def session(self, id_: str, **more: str) -> Session:
        return self.guard().session(id_, **{"project": "p", **more})


def drain(session: Session, tool: str = "tool", most: int = 10_000) -> int:
    """How many more calls are let through."""
    count = 0
    while count < most and session.check(tool, {"n": count}).allowed:
        count += 1
    return count


def a_second_later(session: Session) -> None:
    """What a guard knows of others is looked up again."""
    session.guard._shared_budgets.invalidate()


def words(decision: Decision) -> str:
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
def test_a_budget_is_shared_by_all_guards_of_its_scope(
    tmp_path: Path, scope: str, same: dict[str, str], other: dict[str, str] | None
) -> None:
    office = Office(tmp_path, f"budgets: {{b: {{calls: 100, per: {scope}}}}}")
    one, two = office.session("one", **same), office.session("two", **same)
    assert drain(one, most=30) == 30
    assert drain(two) == 70
    refused = one.check("tool", {})
    assert words(refused) == f"budget `b` is used up: 100 of 100 calls per {scope}"
    if other is not None:
        assert drain(office.session("three", **other)) == 100


def test_what_a_session_owns_is_its_own(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {calls: 10}, t: {calls: 5, per: turn}}")
    one, two = office.session("one"), office.session("two")
    assert (drain(one), drain(two)) == (5, 5)
    assert one.guard._shared_budgets is None
    assert not (tmp_path / "state" / "store.db.purses").exists()


def test_a_purse_outlives_the_guards(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {calls: 10, per: project}}")
    assert drain(office.session("one"), most=4) == 4
    assert drain(office.session("two")) == 6
    assert drain(office.session("three")) == 0


def test_policies_do_not_meddle_in_each_others_budgets(tmp_path: Path) -> None:
    one = Office(tmp_path, "budgets: {b: {calls: 3, per: global}}", name="one")
    two = Office(tmp_path, "budgets: {b: {calls: 5, per: global}}", name="two")
    assert (drain(one.session("a")), drain(two.session("b"))) == (3, 5)


def test_guards_of_one_store_in_memory_share_it_too(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {calls: 100, per: project}}")
    store = MemoryStore(caps=CAPS)
    one, two = (office.guard(store).session(name, project="p") for name in ("one", "two"))
    assert drain(one, most=30) == 30
    assert drain(two) == 70


def test_a_released_call_is_given_back_to_everybody(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {calls: 10, per: project}}")
    one, two = office.session("one"), office.session("two")
    decisions = [one.check("tool", {"n": n}) for n in range(6)]
    assert drain(two) == 4
    for decision in decisions[:4]:
        one.release(decision)
        one.release(decision)
    one.record(decisions[5], result="fine")
    assert drain(two) == 4
    assert drain(one) == 0


def test_a_grant_counts_for_every_process(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {calls: 10, per: project}}")
    one, two = office.session("one"), office.session("two")
    assert drain(one) == 10
    assert not two.check("tool", {}).allowed
    two.grant("b", 5, by="ann")
    assert drain(one) == 5
    assert words(two.check("tool", {})) == "budget `b` is used up: 15 of 15 calls per project"


def test_an_approval_that_extends_does_so_for_everybody(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {calls: 3, per: project, effect: ask, extend: 2}}")
    one, two = office.session("one"), office.session("two")
    assert drain(one) == 3
    asked = one.check("tool", {"n": "more"})
    assert one.approve(asked, by="ann")
    assert one.check("tool", {"n": "more"}).allowed
    assert drain(two) == 1


def test_an_approved_call_runs_and_counts_although_it_is_too_much(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {calls: 3, per: project, effect: ask}}")
    one, two = office.session("one"), office.session("two")
    assert drain(one) == 3
    one.approve(one.check("tool", {"n": "more"}), by="ann")
    assert one.check("tool", {"n": "more"}).allowed
    assert words(two.check("tool", {})) == "budget `b` is used up: 4 of 3 calls per project"


def test_advice_lets_calls_run_and_counts_them(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {calls: 3, per: project, effect: advise}}")
    one, two = office.session("one"), office.session("two")
    assert drain(one, most=20) == 20
    told = two.check("tool", {})
    assert told.allowed
    assert words(told) == "budget `b` is used up: 21 of 3 calls per project"


def test_a_note_on_the_way_leaves_the_budget_exact(tmp_path: Path) -> None:
    terms = "sum: call.args.n, max: 10, advise_at: 2"
    office = Office(tmp_path, f"budgets: {{b: {{{terms}, per: project}}}}")
    sessions = [office.session(f"s{number}") for number in range(4)]
    used = 0
    for amount in (1, 3, 3):
        for session in sessions:
            used += amount * session.check("tool", {"n": amount}).allowed
    assert used == 10


def test_what_is_observed_is_counted(tmp_path: Path) -> None:
    office = Office(tmp_path, "mode: observe\nbudgets: {b: {calls: 3, per: project}}")
    assert drain(office.session("one"), most=20) == 20
    assert office.session("two").check("tool", {}).would[0].used == 20


def test_steps_see_what_others_have_drawn(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {calls: 10, per: project, advise_at: 8}}")
    assert drain(office.session("one"), most=6) == 6
    two = office.session("two")
    assert two.check("tool", {"n": 1}).effect == "allow"
    assert two.check("tool", {"n": 2}).effect == "advise"
    assert drain(two) == 2, "a step is no licence to overdraw"


def test_a_call_draws_on_all_its_budgets_or_on_none(tmp_path: Path) -> None:
    office = Office(
        tmp_path,
        """
budgets:
  all: {calls: 100, per: project}
  few: {calls: 4, per: user, tools: [few]}
  places: {concurrent: 5, per: global}
""",
    )
    one, two = office.session("one", user="u"), office.session("two", user="u")
    assert drain(one, "few", most=2) == 2
    assert drain(two, "few") == 2
    assert drain(one, "few") == 0
    assert drain(two, "many") == 1, "five run at once"
    assert two.check("many", {}).violations[0].id == "budgets/places"
    two.record("c1", result="")
    assert drain(one, "many") == 1


def test_places_are_free_when_a_call_has_ended_wherever_it_ran(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {concurrent: 3, per: project}}")
    one, two = office.session("one"), office.session("two")
    decisions = [one.check("tool", {"n": n}) for n in range(3)]
    assert not two.check("tool", {}).allowed
    one.record(decisions[0], result="")
    one.release(decisions[1])
    assert drain(two) == 2
    two.end()
    assert drain(one) == 2


def test_a_call_that_nobody_reports_frees_its_place(tmp_path: Path) -> None:
    office = Office(
        tmp_path, "bounds: {unreported: 1m}\nbudgets: {b: {concurrent: 2, per: project}}"
    )
    one, two = office.session("one"), office.session("two")
    assert drain(one) == 2
    office.clock.now += 61 * SECOND
    assert not two.check("tool", {}).allowed
    assert not one.check("tool", {}).allowed, "but the oldest is given up for it"
    assert drain(two) == 1
    one.end()
    assert drain(two) == 1


def test_what_is_paid_afterwards_is_known_to_all_when_it_is_refused(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {cost: 1.0, per: project}}")
    one, two = office.session("one"), office.session("two")
    for session in (one, two, one):
        session.record(session.check("tool", {}), result="", cost=0.3)
    running = two.check("tool", {})
    assert running.allowed
    one.spend(cost=0.05)
    two.record(running, result="", cost=0.2)
    a_second_later(one)
    refused = one.check("tool", {})
    assert words(refused) == "budget `b` is used up: 1.15 of 1 cost per project"


def test_others_costs_are_known_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office(tmp_path, "budgets: {b: {tokens: 100, per: project}}")
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    one, two = office.session("one"), office.session("two")
    assert two.check("tool", {}).allowed
    one.record(one.check("tool", {}), result="", tokens=500)
    now[0] += 1.01
    assert not two.check("tool", {}).allowed


def test_what_is_reserved_is_held_until_it_is_known(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {cost: 1.0, per: project, reserve: 0.4}}")
    one, two = office.session("one"), office.session("two")
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


def test_a_sum_over_outcomes_is_counted_for_all(tmp_path: Path) -> None:
    office = Office(
        tmp_path,
        "budgets:\n  fails: {calls: 2, per: project, when: '!outcome.ok'}\n"
        "  chars: {sum: outcome.chars, max: 100, per: project}\n",
    )
    one, two = office.session("one"), office.session("two")
    one.record(one.check("tool", {"n": 1}), result="x" * 10)
    one.record(one.check("tool", {"n": 2}), error="no")
    two.record(two.check("tool", {"n": 3}), error="no way")
    a_second_later(one)
    refused = one.check("tool", {"n": 4})
    assert refused.violations[0].id == "budgets/fails"
    assert refused.violations[0].used == 2


def test_amounts_of_arguments_never_overshoot(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {sum: double(call.args.n), max: 10, per: project}}")
    one, two = office.session("one"), office.session("two")
    got = [
        session.check("tool", {"n": n}).allowed
        for session, n in [(one, 4.5), (two, 4.5), (one, 1.5), (two, 1), (one, 0.1)]
    ]
    assert got == [True, True, False, True, False]
    huge = office.session("huge", project="q")
    assert not huge.check("tool", {"n": 1e300}).allowed
    assert drain(office.session("three"), most=3) == 1  # an amount of 0


def test_a_window_is_one_for_all(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {calls: 10, per: project, within: 1m}}")
    one, two = office.session("one"), office.session("two")
    assert drain(one, most=4) == 4
    office.clock.now += 30 * SECOND
    assert drain(two) == 6
    refused = one.check("tool", {})
    assert refused.violations[0].retry_after == pytest.approx(30, abs=1)
    office.clock.now += 30 * SECOND
    assert drain(one) == 4
    office.clock.now += 30 * SECOND
    assert drain(two) == 6


def test_time_runs_from_the_scopes_first_call(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {time: 1h, per: project}}")
    one = office.session("one")
    assert one.check("tool", {}).allowed
    office.clock.now += 3599 * SECOND
    assert office.session("two").check("tool", {}).allowed
    office.clock.now += SECOND
    assert not office.session("three").check("tool", {}).allowed
    one.grant("b", 60, by="ann")
    assert office.session("four").check("tool", {}).allowed


def test_keys_are_counted_apart_and_capped_for_all(tmp_path: Path) -> None:
    office = Office(
        tmp_path,
        "bounds: {budget_keys: 3}\n"
        "budgets: {b: {calls: 2, per: [project, call.args.order], within: 1h}}",
    )
    one, two = office.session("one"), office.session("two")

    def check(session: Session, order: str) -> Decision:
        return session.check("tool", {"order": order})

    assert check(one, "a").allowed
    assert check(two, "a").allowed
    assert not check(one, "a").allowed
    assert check(one, "b").allowed
    assert check(two, "c").allowed
    for session in (one, two):
        refused = check(session, "d")
        assert words(refused) == "the budget has too many different keys"
        assert not session.preview("tool", {"order": "e"}).allowed
    one.grant("b", 1, by="ann")
    assert check(two, "a").allowed
    assert not check(one, "a").allowed
    office.clock.now += 3601 * SECOND
    assert check(two, "d").allowed, "orders that are long over make room"
    assert check(one, "d").allowed


def test_a_guard_has_no_more_purses_in_hand_than_the_bounds_say(tmp_path: Path) -> None:
    office = Office(tmp_path, "bounds: {budget_keys: 20}\nbudgets: {b: {calls: 3, per: project}}")
    guard = office.guard()
    for number in range(50):
        assert drain(guard.session(f"s{number}", project=f"p{number}"), most=2) == 2
    assert len(guard._shared_budgets._open_quotas) <= 20
    assert len(guard._state.engine_state.ledger.usages["budgets/b"]) <= 20
    assert drain(guard.session("again", project="p0")) == 1


def test_decide_answers_as_check_would_and_changes_nothing(tmp_path: Path) -> None:
    office = Office(tmp_path, "budgets: {b: {calls: 2, per: project}, t: {time: 1h, per: project}}")
    one, two = office.session("one"), office.session("two")
    assert all(two.preview("tool", {}).allowed for _ in range(5))
    office.clock.now += 7200 * SECOND
    assert drain(one) == 2
    assert not two.preview("tool", {}).allowed
    assert words(two.preview("tool", {})) == words(one.check("tool", {}))


def test_a_session_that_is_rebuilt_draws_nothing_twice(tmp_path: Path) -> None:
    office = Office(
        tmp_path,
        "budgets: {b: {calls: 10, per: project}, c: {cost: 2, per: project, reserve: 0.1}, "
        "o: {concurrent: 3, per: project}}",
    )
    first = office.guard()
    one = first.session("one", project="p")
    for _ in range(2):
        one.record(one.check("tool", {}), result="", cost=0.2)
    one.check("tool", {"left": "running"})
    one.grant("b", 1, by="ann")
    first._open_sessions.remove("one")  # as the death of the process would
    first._journal.close()
    del first, one
    gc.collect()

    guard = office.guard()
    other = guard.session("two", project="p")
    assert other.preview("tool", {}).allowed
    again = guard.session("one", project="p")
    assert other.check("tool", {}).allowed
    account = guard._state.engine_state.ledger.get("budgets/b", "p")
    assert (account.used, account.granted) == (4 * SECOND, SECOND)
    again.record("c3", result="", cost=0.3)
    assert drain(other) == 2, "three at once, and the dead hold no place"
    assert other.check("tool", {}).violations[0].used == 3


def test_a_store_that_is_locked_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    for answer in ("block", "allow"):
        office = (
            Office(
                tmp_path / answer,
                f"on_internal_error: {answer}\n"
                "journal: {durability: memory}\nbudgets: {b: {calls: 10, per: project}}",
            )
            if (tmp_path / answer).mkdir() is None
            else None
        )
        assert office is not None
        one, two = office.session("one"), office.session("two")
        for session in (one, two):
            session.guard._constraint_sync.store._database._patience = 0.05
        assert drain(one, most=1) == 1
        one.guard._constraint_sync.store.close()
        holder = sqlite3.connect(office.store, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        failed = one.check("tool", {})
        assert failed.allowed == (answer == "allow")
        assert "locked by another process" in failed.errors[0].error
        assert not any("Traceback" in fault.error for fault in failed.errors)
        holder.execute("COMMIT")
        holder.close()
        assert one.check("tool", {}).allowed
        assert drain(two) == (7 if answer == "allow" else 8)
