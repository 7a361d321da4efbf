"""Sessions that are resumed under a policy whose budgets are others."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard


def load_guard(folder: Path, budgets: str) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: budgets\n{budgets}")
    return Guard.load(file, store=folder / "state" / "store.db")


@pytest.mark.parametrize("released_after", [False, True])
def test_a_charge_to_a_budget_that_is_gone_is_refunded_to_none(
    tmp_path: Path, released_after: bool
) -> None:
    with load_guard(tmp_path, "budgets: {few: {calls: 1}}\n") as guard:
        session = guard.session("s")
        decision = session.check("a")
        if not released_after:
            session.release(decision)
    with load_guard(tmp_path, "") as guard:
        session = guard.session("s")
        if released_after:
            session.release(decision.id)
        assert session.in_flight == {}
        assert session.check("a").effect == "allow"
    with load_guard(tmp_path, "budgets: {few: {calls: 1}}\n") as guard:
        session = guard.session("s")
        assert [session.check("a").allowed for _ in range(2)] == [True, False]


def test_refused_calls_count_for_nothing_once_the_budget_is_a_sum(tmp_path: Path) -> None:
    with load_guard(tmp_path, "budgets: {some: {calls: 1, halt_at: 9}}\n") as guard:
        session = guard.session("s")
        assert [session.check("a", {"n": 1}).allowed for _ in range(4)] == [True, *[False] * 3]
    with load_guard(
        tmp_path, "budgets: {some: {sum: call.args.n, max: 10, advise_at: 8}}\n"
    ) as guard:
        session = guard.session("s")
        assert [session.check("a", {"n": n}).effect for n in (4, 2, 1)] == ["allow"] * 2 + [
            "advise"
        ]
