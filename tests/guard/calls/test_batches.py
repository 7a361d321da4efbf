"""Batches that are checked as a whole, and values that a journal rebuilds."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.model.event import Admitted, Refused, Released

TEXT = """\
policyguard: 1
name: p
batch: %s
rules: {no-drop: {tools: [drop], effect: block}}
budgets:
  calls: {calls: 3}
  people: {tools: [mail], distinct: call.args.to, max: 2}
journal: {args: keep}
"""


def load(tmp_path: Path, mode: str = "all_or_none", **options) -> Guard:
    file = tmp_path / "policy.yaml"
    file.write_text(TEXT % mode, "utf-8")
    return Guard.load(file, **options)


def test_a_batch_runs_as_a_whole_or_not_at_all(tmp_path):
    guard = load(tmp_path)
    events = []
    guard.on(events.append)
    session = guard.session("s")
    batch = [("read", {"n": 1}), ("drop", {}), ("read", {"n": 2})]
    decisions = session.check_batch(batch, batch="m1")
    assert [decision.allowed for decision in decisions] == [False, False, False]
    assert [one.violations[0].id for one in decisions] == [
        "batch/all_or_none",
        "rules/no-drop",
        "batch/all_or_none",
    ]
    kinds = [type(event) for event in events if isinstance(event, Admitted | Refused | Released)]
    assert kinds == [Admitted, Refused, Refused, Released, Refused]
    assert all(session.check_batch([("read", {"n": n}) for n in range(3)], batch="m2"))


def test_a_batch_of_which_each_call_stands_for_itself(tmp_path):
    session = load(tmp_path, "each").session("s")
    decisions = session.check_batch([("drop", {}), ("read", {})], batch="m1")
    assert [decision.allowed for decision in decisions] == [False, True]


def test_values_are_the_same_after_a_restart_and_not_in_the_journal(tmp_path):
    store = tmp_path / "state" / "store.db"
    guard = load(tmp_path, "each", store=store)
    session = guard.session("s")
    first = session.check("mail", {"to": "ann@example.org"})
    session.record(first, result="sent")
    second = session.check("mail", {"to": "bob@example.org"})
    session.release(second)
    session.record(session.check("mail", {"to": "cid@example.org"}), result="sent")
    guard.close()
    (journal,) = (tmp_path / "state" / "journal").iterdir()
    charges = [line for line in journal.read_text().splitlines() if '"charges"' in line]
    assert charges
    for line in charges:
        start = line.index('"charges"')
        assert "example.org" not in line[start:]
    guard = load(tmp_path, "each", store=store)
    session = guard.session("s")
    assert [one.id for one in session.preview("mail", {"to": "dan@example.org"}).violations] == [
        "budgets/people"
    ]
    assert session.preview("mail", {"to": "ann@example.org"})
    guard.close()


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_a_sub_agent_counts_for_its_parent(tmp_path, is_rebuilt):
    store = tmp_path / "state" / "store.db"
    guard = load(tmp_path, "each", store=store)
    parent = guard.session("p")
    child = guard.session("c", parent=parent)
    child.record(child.check("mail", {"to": "ann"}), result="sent")
    parent.record(parent.check("mail", {"to": "bob"}), result="sent")
    if is_rebuilt:
        guard.close()
        guard = load(tmp_path, "each", store=store)
        parent = guard.session("p")
    assert not parent.preview("mail", {"to": "eve"})
    assert parent.preview("mail", {"to": "ann"})
    guard.close()


def test_old_batches_are_forgotten(tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: p\nbudgets: {b: {calls: 1, per: batch}}\n"
        "bounds: {window_entries: 10}\n",
        "utf-8",
    )
    guard = Guard.load(file)
    session = guard.session("s")
    for number in range(50):
        assert session.check("read", {"n": number}, batch=f"m{number}")
    assert not session.preview("read", {}, batch="m49")
    ledger = guard._state.evaluator_state.ledger
    assert ledger.key_count("budgets/b") == 10
