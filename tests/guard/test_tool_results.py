"""What a tool gave, as it is read: text, JSON, MCP results and tasks, states and flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import types

from policyguard import Guard, Session

POLICY = """
policyguard: 1
name: results
outcomes:
  envelope:
    - {state: success, pattern: "^SUCCESS:"}
    - {state: failure, pattern: "^FAILED:"}
    - {state: pending, pattern: "(?s).*"}
  meta: {non_advancing: [ai.example/non-advancing], harness: [ai.example/infra-error]}
"""
PRICED = """
policyguard: 1
name: priced
budgets:
  taxed: {sum: outcome.cost * 1.5, max: 6}
  graded: {sum: outcome.score * 2.5, max: 15}
rules: {dear: {when: session.cost * 1.5 > 100.0}}
"""
PLAIN = "policyguard: 1\nname: plain\noutcomes: {meta: {non_advancing: [n], harness: [h]}}\n"


def of(tmp_path: Path, policy: str = PLAIN) -> Session:
    file = tmp_path / "policy.yaml"
    file.write_text(policy)
    return Guard.load(file).session("s")


def outcome(session: Session, result: Any, **told: Any) -> Any:
    return session.record(session.check("t"), result=result, **told).outcome


def text(*texts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": one} for one in texts], **more}


def test_an_mcp_result_is_read_by_its_parts(tmp_path: Path) -> None:
    session = of(tmp_path)
    good = outcome(session, text("a", "b", isError=False))
    assert (good.ok, good.text) == (True, "a\nb")
    bad = outcome(session, text("no such file", isError=True))
    assert (bad.ok, bad.error) == (False, "no such file")
    image = outcome(session, {"content": [{"type": "image", "data": "AA"}]})
    assert '"data":"AA"' in image.text
    structured = outcome(session, {"content": [], "structuredContent": {"n": 1}})
    assert structured.text == '{"n":1}'


def test_the_sdk_s_own_results_are_read_the_same(tmp_path: Path) -> None:
    session = of(tmp_path)
    given = {**text("stuck", isError=True), "_meta": {"n": True, "h": True}}
    found = outcome(session, types.CallToolResult.model_validate(given))
    assert (found.ok, found.error, found.meta) == (False, "stuck", {"n": True})
    now = "2026-01-01T00:00:00Z"
    task = {"taskId": "t", "status": "working", "createdAt": now, "lastUpdatedAt": now, "ttl": None}
    made = types.CreateTaskResult.model_validate({"task": task})
    assert outcome(session, made).state == "pending"


def test_what_looks_a_little_like_one_is_plain_json(tmp_path: Path) -> None:
    session = of(tmp_path)
    assert outcome(session, {"content": "text"}).text == '{"content":"text"}'
    assert outcome(session, {"content": [1, 2]}).text == '{"content":[1,2]}'
    assert outcome(session, {"isError": True}).ok


def test_a_running_task_is_pending_and_a_failed_one_has_failed(tmp_path: Path) -> None:
    session = of(tmp_path)
    task = {"taskId": "t1", "status": "working", "createdAt": "x", "ttl": 60000}
    running = outcome(session, {"task": task})
    assert (running.state, running.ok) == ("pending", True)
    failed = outcome(session, {"task": {**task, "status": "failed", "statusMessage": "disk"}})
    assert (failed.state, "disk" in failed.error) == ("failure", True)


def test_the_wire_cannot_speak_for_the_host(tmp_path: Path) -> None:
    session = of(tmp_path)
    flags = {"n": True, "h": True, "other": 1}
    wire = outcome(session, text("x", isError=True, _meta=flags))
    assert (wire.harness_flagged, wire.advancing, wire.blame) == (False, False, "unknown")
    assert wire.meta == {"n": True, "other": 1}
    inner = text("x", isError=True, _meta=flags)
    task = outcome(session, {"task": {"status": "failed"}, "result": inner, "_meta": flags})
    assert (task.harness_flagged, task.advancing, task.text) == (False, False, "x")
    host = outcome(session, text("x", isError=True), meta={"h": True})
    assert (host.harness_flagged, host.blame) == (True, "harness")


def test_a_mark_that_says_more_than_the_state_is_told(tmp_path: Path) -> None:
    marks = "{state: failure, pattern: 'HTTP [45][0-9][0-9]'}, {state: success, pattern: ^SUCCESS$}"
    session = of(tmp_path, f"policyguard: 1\nname: x\noutcomes: {{envelope: [{marks}]}}\n")
    told = [session.record(session.check("t"), result=one) for one in ("HTTP 503", "SUCCESS")]
    assert [one.text for one in told] == ["FAILED: HTTP 503", "SUCCESS:"]


def test_the_model_gets_an_unambiguous_result(tmp_path: Path) -> None:
    session = of(tmp_path, POLICY)
    told = {
        given: session.record(session.check("t", {"n": given}), result=given)
        for given in ("SUCCESS: booked", "FAILED: full", "SUCCESS:", "FAILED: ", "maybe later", "")
    }
    assert [one.text for one in told.values()] == [
        "SUCCESS: booked",
        "FAILED: full",
        "SUCCESS:",
        "FAILED:",
        "PENDING: maybe later",
        "PENDING:",
    ]
    failed = session.record(session.check("t"), error="TimeoutError: no answer")
    assert failed.text == "FAILED: TimeoutError: no answer"
    assert failed.structured["state"] == "failure"
    assert failed.structured["metadata"]["reason"] == "TimeoutError: no answer"
    waits = session.record(session.check("t", {"n": 2}), result="wait", retry_after=3)
    assert waits.structured["metadata"]["retry_after"] == 3


@pytest.mark.parametrize("rest", [".*", ".+", ".", "(?s).*", "(?s)^.*$", r"\\s*", "^"])
@pytest.mark.parametrize("text", ["line 1\nline 2\n", "\n  x: 1\n", "x", ": x"])
def test_a_fallback_takes_nothing_away(tmp_path: Path, rest: str, text: str) -> None:
    marks = f'{{state: pending, pattern: "^PENDING"}}, {{state: success, pattern: "{rest}"}}'
    session = of(tmp_path, f"policyguard: 1\nname: x\noutcomes: {{envelope: [{marks}]}}\n")
    assert session.record(session.check("t"), result=text).text == f"SUCCESS: {text}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("PENDING: 3 of 10", "PENDING: 3 of 10"),
        ("PENDING 3 of 10", "PENDING: 3 of 10"),
        ("PENDING\n3 of 10\n", "PENDING: 3 of 10\n"),
        ("PENDING:", "PENDING:"),
        ("WAIT: :80 is not open", "PENDING: :80 is not open"),
        ("it is PENDING: 3", "PENDING: it is PENDING: 3"),
    ],
)
def test_a_mark_is_what_begins_the_text_and_its_colon(
    tmp_path: Path, given: str, told: str
) -> None:
    marks = '{state: pending, pattern: "^WAIT:"}, {state: pending, pattern: "PENDING"}'
    session = of(tmp_path, f"policyguard: 1\nname: x\noutcomes: {{envelope: [{marks}]}}\n")
    assert session.record(session.check("t"), result=given).text == told


def test_without_an_envelope_results_stay_as_they_are(tmp_path: Path) -> None:
    session = of(tmp_path)
    assert session.record(session.check("t"), result="PENDING: x").text == "PENDING: x"


def test_a_whole_number_of_cost_or_score_is_a_double_as_any_other(tmp_path: Path) -> None:
    session = of(tmp_path, PRICED)
    for _ in range(2):
        recorded = session.record(session.check("t"), result="", cost=2, score=2)
        assert recorded.errors == ()
    refused = session.check("t")
    assert refused.errors == ()
    assert [found.text for found in refused.violations] == [
        "budget `taxed` is used up: 6 of 6 in all per session"
    ]


def test_a_result_reported_twice_counts_once_and_says_so(tmp_path: Path) -> None:
    session = of(tmp_path)
    decision = session.check("t")
    assert session.record(decision, result="a").counted
    assert not session.record(decision, result="b").counted
