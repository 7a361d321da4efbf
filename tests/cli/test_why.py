"""`policyguard why` asks the policy again about a call of a journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from policyguard import Guard
from policyguard.cli import main

POLICY = """
policyguard: 1
name: why
extends: [core]
journal: {args: ARGS, results: keep, redact: [token]}
patterns: {token: "tok_[a-z]+"}
params: {most: 100}
rules:
  live: {tools: [deploy], when: call.args.to == 'live', effect: ask, message: live needs a yes}
  big: {tools: [deploy], when: call.args.cents > params.most, unless: call.args.ok, mode: observe}
  other: {tools: [read], when: call.args.path == 'other', message: not this}
  cases:
    tools: [pay]
    cases:
      - {when: call.args.cents < 10, effect: allow}
      - {when: call.args.cents < 90, effect: block, message: too much}
budgets:
  steps: {calls: 4}
"""


@pytest.fixture(scope="module", params=["keep", "hash", "drop"])
def kept(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, kept: str) -> Any:
    folder = tmp_path_factory.mktemp(kept)
    policy, store = folder / "policy.yaml", folder / "state.db"
    policy.write_text(POLICY.replace("ARGS", kept), "utf-8")
    with Guard.load(policy, store=store) as guard:
        session = guard.session("s")
        live = {"to": "live", "cents": 500, "ok": False}
        asked = session.check("deploy", live, call="h1")
        session.deny(asked, by="ann", message="not today")
        session.check("deploy", live, call="h2")
        session.check("pay", {"cents": 50}, call="h3")
        session.check("deploy", {"to": "live", "key": "tok_abc"}, call="h6")
        for _ in range(3):
            decision = session.check("read", {"path": "x"})
            session.record(decision, error="no such file: x")
        wanted = session.check("deploy", {"to": "live", "cents": 7}, call="h7")
        session.approve(wanted, by="bob")
        session.record(session.check("deploy", {"to": "live", "cents": 7}, call="h8"), result="ok")
        session.check("read", {"path": "y"}, call="h4")
        session.check("read", {"path": "z"}, call="h5")
        session.check("read", {"path": "x"}, call="h10")
        session.check("pay", {"cents": 500}, call="h11")

    def why(*arguments: str) -> Result:
        options = ["--policy", str(policy), "--store", str(store)]
        return CliRunner().invoke(main, ["why", *arguments, *options])

    return why


def explain(run: Any, call: str) -> dict[str, Any]:
    result = run("s", call, "--format", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    found["entries"] = {one["entry"]: one for one in found["entries"]}
    return found


def test_each_entry_says_what_it_saw(run: Any, kept: str) -> None:
    found = explain(run, "h1")
    assert (found["effect"], found["recorded"]) == ("ask", ["rules/live"])
    assert found["answers"] == ["denied by ann: not today"]
    live = found["entries"]["rules/live"]
    assert live["effect"] == "ask"
    if kept != "keep":
        assert live["saw"] == {"call.args.to": "(not kept)"}
        assert "did not keep the arguments" in found["notes"][0]
        return
    assert live["text"] == "live needs a yes"
    assert live["saw"] == {"call.args.to": "live"}
    assert live["change"] == "`call.args.to == 'live'` false, or an approval"
    big = found["entries"]["rules/big"]
    assert (big["effect"], big["observed"]) == ("block", True)
    assert big["saw"] == {"call.args.cents": "500", "params.most": "100", "call.args.ok": "false"}
    assert found["notes"] == []


def test_an_approved_call_says_by_whom(run: Any) -> None:
    asked, ran = explain(run, "h7"), explain(run, "h8")
    assert asked["answers"] == ["approved by bob"]
    assert ran["answers"] == [f"allowed by the approval of bob, for call {asked['call']}"]
    assert explain(run, "h5")["entries"]["budgets/steps"]["change"] == "a larger `calls`"


def test_a_denied_call_waits_for_the_next_turn(run: Any, kept: str) -> None:
    live = explain(run, "h2")["entries"]["rules/live"]
    assert live["effect"] == "block"
    if kept == "keep":
        assert live["text"] == "denied by ann: not today"
        assert live["change"].startswith("the user's next message")


def test_a_case_is_named(run: Any, kept: str) -> None:
    found = explain(run, "h3")
    assert found["recorded"] == ["rules/cases/2"]
    if kept == "keep":
        assert found["entries"]["rules/cases/2"]["text"] == "too much"


def test_state_is_that_of_the_call(run: Any) -> None:
    third = explain(run, "c7")
    assert third["result"] == "failed: no such file: x"
    assert third["entries"]["limits/default/failures/same-call"]["text"].startswith(
        "this call has failed twice"
    )
    assert third["entries"]["budgets/steps"]["text"] == "2 of 4 left"
    last = explain(run, "h5")
    assert (last["effect"], last["entries"]["budgets/steps"]["effect"]) == ("block", "block")


def test_a_refusal_by_a_limit_has_its_text(run: Any) -> None:
    found = explain(run, "h10")
    fired = [one for one in found["recorded"] if one.startswith("limits/")]
    for id_ in fired:
        assert found["entries"][id_]["text"].startswith(("this call", "the same call"))
    assert fired


def test_secrets_stay_hidden(run: Any) -> None:
    shown = run("s", "h6").output
    assert "tok_" not in shown
    assert "asked, as the policy is now:" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("s", "h9"), "has no call `h9`"), (("t", "h1"), "session `t` has no journal")],
)
def test_what_is_unknown_is_said(run: Any, arguments: tuple[str, str], said: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, said in result.output) == (2, True)


def test_an_entry_of_another_policy_is_said_to_be_missing(tmp_path: Path) -> None:
    policy, store = tmp_path / "policy.yaml", tmp_path / "state.db"
    policy.write_text("policyguard: 1\nname: p\nrules: {stop: {tools: [ls]}}\n", "utf-8")
    with Guard.load(policy, store=store) as guard:
        guard.session("s").check("ls", {}, call="h1")
    result = CliRunner().invoke(main, ["why", "s", "h1", "--policy", "core", "--store", str(store)])
    said = "it fired then; this policy has no such entry for the call: rules/stop"
    assert (result.exit_code, said in result.output) == (0, True), result.output


RESULTS = """
policyguard: 1
name: results
journal: {results: keep}
outcomes: {envelope: [{state: pending, pattern: "^started"}]}
"""


@pytest.mark.parametrize(
    ("reported", "shown"),
    [
        ({"result": "done"}, "ran: done"),
        ({"error": "boom"}, "failed: boom"),
        ({"result": "started job 7"}, "pending"),
        (None, "it did not run"),
        ({}, "no result"),
    ],
)
def test_the_result_of_the_call_is_shown(
    tmp_path: Path, reported: dict[str, str] | None, shown: str
) -> None:
    """Not that of another call that ran at the same time."""
    policy, store = tmp_path / "policy.yaml", tmp_path / "state.db"
    policy.write_text(RESULTS, "utf-8")
    with Guard.load(policy, store=store) as guard:
        session = guard.session("s")
        before, call = session.check("read", {"n": 1}), session.check("read", {"n": 2}, call="h")
        after = session.check("read", {"n": 3})
        session.record(before, result="before")
        session.release(after)
        if reported is None:
            session.release(call)
        elif reported:
            session.record(call, **reported)
        session.check("read", {"n": 4})
    options = ["--policy", str(policy), "--store", str(store), "--format", "json"]
    result = CliRunner().invoke(main, ["why", "s", "h", *options])
    assert json.loads(result.output)["result"] == shown


def test_marks_of_agents_are_not_in_the_journal(tmp_path: Path) -> None:
    policy, store = tmp_path / "policy.yaml", tmp_path / "state" / "store.db"
    policy.write_text(
        "policyguard: 1\nname: team\n"
        "marks: {wrote: {set: {tools: [write]}, per: agent}, tested: {set: {tools: [write]}}}\n"
        "rules: {merge: {tools: [merge], when: mark.wrote || mark.tested}}\n"
    )
    with Guard.load(policy, store=store) as guard:
        session = guard.session("s")
        assert session.check("write", {}).allowed
        guard.session("t").mark("wrote")
        assert not session.check("merge", {}).allowed
    named = ["--policy", str(policy), "--store", str(store), "--format", "json"]
    found = [CliRunner().invoke(main, ["why", "s", call, *named]) for call in ("c1", "c2")]
    notes = [json.loads(result.output)["notes"] for result in found]
    assert notes[0] == []
    assert notes[1][0] == (
        "not set here are `wrote`: no journal has the marks of agents and projects"
    )
    assert "what other sessions used or marked" in notes[1][1]


@pytest.mark.parametrize(
    ("call", "rule", "reads_args", "reason"),
    [
        ("h11", "rules/cases", False, "no case matches"),
        ("h8", "rules/live", True, "approved or granted"),
    ],
)
def test_a_rule_that_did_not_fire_says_why(
    run: Any, kept: str, call: str, rule: str, reads_args: bool, reason: str
) -> None:
    text = explain(run, call)["entries"][rule]["text"]
    has_args = kept == "keep" or not reads_args
    assert text == (reason if has_args else "it needs the arguments")
