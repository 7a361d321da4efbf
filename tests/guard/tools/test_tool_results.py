"""How tool results are read: text, JSON, MCP results and tasks, states and flags."""

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


def load_session(tmp_path: Path, policy: str = PLAIN) -> Session:
    file = tmp_path / "policy.yaml"
    file.write_text(policy)
    return Guard.load(file).session("s")


def record_outcome(session: Session, result: Any, **details: Any) -> Any:
    return session.record(session.check("t"), result=result, **details).outcome


def text_result(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": item} for item in texts], **fields}


def test_mcp_results_are_read(tmp_path: Path) -> None:
    session = load_session(tmp_path)
    success = record_outcome(session, text_result("a", "b", isError=False))
    assert (success.ok, success.text) == (True, "a\nb")
    failure = record_outcome(session, text_result("no such file", isError=True))
    assert (failure.ok, failure.error) == (False, "no such file")
    image = record_outcome(session, {"content": [{"type": "image", "data": "AA"}]})
    assert '"data":"AA"' in image.text
    structured = record_outcome(session, {"content": [], "structuredContent": {"n": 1}})
    assert structured.text == '{"n":1}'


def test_results_of_the_mcp_sdk_are_read(tmp_path: Path) -> None:
    session = load_session(tmp_path)
    result = {**text_result("stuck", isError=True), "_meta": {"n": True, "h": True}}
    outcome = record_outcome(session, types.CallToolResult.model_validate(result))
    assert (outcome.ok, outcome.error, outcome.meta) == (False, "stuck", {"n": True})
    now = "2026-01-01T00:00:00Z"
    task = {"taskId": "t", "status": "working", "createdAt": now, "lastUpdatedAt": now, "ttl": None}
    created = types.CreateTaskResult.model_validate({"task": task})
    assert record_outcome(session, created).state == "pending"


def test_json_that_resembles_an_mcp_result_is_plain_json(tmp_path: Path) -> None:
    session = load_session(tmp_path)
    assert record_outcome(session, {"content": "text"}).text == '{"content":"text"}'
    assert record_outcome(session, {"content": [1, 2]}).text == '{"content":[1,2]}'
    assert record_outcome(session, {"isError": True}).ok


class SdkBlock:
    """A block of text of another SDK."""

    def __init__(self, text: str) -> None:
        self.text = text


class SdkResult:
    """A result of another SDK: not a model, with a flag of its own name."""

    def __init__(self, content: Any, **flags: Any) -> None:
        self.content = content
        self.__dict__.update(flags)


@pytest.mark.parametrize(
    ("result", "is_read"),
    [
        (text_result("a"), True),
        ({"content": [{"text": "a"}], "isError": True}, True),
        ({"content": [{"text": "a"}], "_meta": {}}, True),
        ({"content": [{"text": "a"}]}, False),
        ({"content": [{"type": "text", "text": "a"}, {"text": "b"}]}, False),
        ({"content": ["type", "types"]}, False),
        (SdkResult([SdkBlock("a")], is_error=True), True),
        (SdkResult([{"text": "a"}], isError=False), True),
        (SdkResult([SdkBlock("a")]), False),
        (SdkResult([SdkBlock("a")], is_error="no"), False),
        (SdkResult("a", is_error=True), False),
    ],
)
def test_a_result_is_read_by_its_blocks_or_its_flag(
    tmp_path: Path, result: Any, is_read: bool
) -> None:
    outcome = record_outcome(load_session(tmp_path), result)
    flag = getattr(result, "is_error", result.get("isError") if isinstance(result, dict) else None)
    assert outcome.ok is not (is_read and flag is True)
    assert ((outcome.text or outcome.error) == "a") is is_read


def test_a_task_without_a_status_is_plain_json(tmp_path: Path) -> None:
    outcome = record_outcome(load_session(tmp_path), {"task": {"id": 3}, "isError": True})
    assert (outcome.ok, outcome.text) == (True, '{"task":{"id":3},"isError":true}')


def test_structured_content_is_shown_only_instead_of_a_text(tmp_path: Path) -> None:
    session = load_session(tmp_path)
    both = record_outcome(session, text_result("one", structuredContent={"n": 1}))
    neither = record_outcome(session, {"content": [], "isError": False})
    assert (both.text, neither.text) == ("one", "")


def test_blocks_of_the_mcp_sdk_show_no_empty_fields(tmp_path: Path) -> None:
    image = types.ImageContent(type="image", data="AA", mimeType="image/png")
    outcome = record_outcome(load_session(tmp_path), types.CallToolResult(content=[image]))
    assert outcome.text == '{"type":"image","data":"AA","mimeType":"image/png"}'


def test_running_task_is_pending_and_failed_task_is_a_failure(tmp_path: Path) -> None:
    session = load_session(tmp_path)
    task = {"taskId": "t1", "status": "working", "createdAt": "x", "ttl": 60000}
    running = record_outcome(session, {"task": task})
    assert (running.state, running.ok) == ("pending", True)
    failed = record_outcome(
        session, {"task": {**task, "status": "failed", "statusMessage": "disk"}}
    )
    assert (failed.state, "disk" in failed.error) == ("failure", True)


@pytest.mark.parametrize(
    "fields",
    [
        {"result": {"n": 1}},
        {"task": "t"},
        {"task": "t", "result": {"n": 1}},
        {"task": {"status": "completed"}, "result": "done"},
    ],
)
def test_fields_named_like_those_of_a_task_hide_no_text(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    result = text_result("no such file", isError=True, **fields)
    outcome = record_outcome(load_session(tmp_path), result)
    assert (outcome.ok, outcome.error) == (False, "no such file")


def test_tool_results_cannot_set_the_flags_of_the_host(tmp_path: Path) -> None:
    session = load_session(tmp_path)
    flags = {"n": True, "h": True, "other": 1}
    from_tool = record_outcome(session, text_result("x", isError=True, _meta=flags))
    assert (from_tool.harness_flagged, from_tool.advancing, from_tool.blame) == (
        False,
        False,
        "unknown",
    )
    assert from_tool.meta == {"n": True, "other": 1}
    task_result = text_result("x", isError=True, _meta=flags)
    task = record_outcome(
        session, {"task": {"status": "failed"}, "result": task_result, "_meta": flags}
    )
    assert (task.harness_flagged, task.advancing, task.text) == (False, False, "x")
    from_host = record_outcome(session, text_result("x", isError=True), meta={"h": True})
    assert (from_host.harness_flagged, from_host.blame) == (True, "harness")


def test_text_matched_by_a_pattern_is_kept_if_it_has_more_than_the_state(tmp_path: Path) -> None:
    envelope = (
        "{state: failure, pattern: 'HTTP [45][0-9][0-9]'}, {state: success, pattern: ^SUCCESS$}"
    )
    session = load_session(
        tmp_path, f"policyguard: 1\nname: x\noutcomes: {{envelope: [{envelope}]}}\n"
    )
    recorded = [session.record(session.check("t"), result=item) for item in ("HTTP 503", "SUCCESS")]
    assert [item.text for item in recorded] == ["FAILED: HTTP 503", "SUCCESS:"]


def test_model_gets_an_unambiguous_state(tmp_path: Path) -> None:
    session = load_session(tmp_path, POLICY)
    recorded = {
        result: session.record(session.check("t", {"n": result}), result=result)
        for result in ("SUCCESS: booked", "FAILED: full", "SUCCESS:", "FAILED: ", "maybe later", "")
    }
    assert [item.text for item in recorded.values()] == [
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
    pending = session.record(session.check("t", {"n": 2}), result="wait", retry_after=3)
    assert pending.structured["metadata"]["retry_after"] == 3


@pytest.mark.parametrize("fallback", [".*", ".+", ".", "(?s).*", "(?s)^.*$", r"\\s*", "^"])
@pytest.mark.parametrize("text", ["line 1\nline 2\n", "\n  x: 1\n", "x", ": x"])
def test_fallback_pattern_removes_no_text(tmp_path: Path, fallback: str, text: str) -> None:
    envelope = f'{{state: pending, pattern: "^PENDING"}}, {{state: success, pattern: "{fallback}"}}'
    session = load_session(
        tmp_path, f"policyguard: 1\nname: x\noutcomes: {{envelope: [{envelope}]}}\n"
    )
    assert session.record(session.check("t"), result=text).text == f"SUCCESS: {text}"


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("PENDING: 3 of 10", "PENDING: 3 of 10"),
        ("PENDING 3 of 10", "PENDING: 3 of 10"),
        ("PENDING\n3 of 10\n", "PENDING: 3 of 10\n"),
        ("PENDING:", "PENDING:"),
        ("WAIT: :80 is not open", "PENDING: :80 is not open"),
        ("it is PENDING: 3", "PENDING: it is PENDING: 3"),
    ],
)
def test_only_a_prefix_with_its_colon_is_replaced(
    tmp_path: Path, result: str, expected: str
) -> None:
    envelope = '{state: pending, pattern: "^WAIT:"}, {state: pending, pattern: "PENDING"}'
    session = load_session(
        tmp_path, f"policyguard: 1\nname: x\noutcomes: {{envelope: [{envelope}]}}\n"
    )
    assert session.record(session.check("t"), result=result).text == expected


def test_results_are_unchanged_without_an_envelope(tmp_path: Path) -> None:
    session = load_session(tmp_path)
    assert session.record(session.check("t"), result="PENDING: x").text == "PENDING: x"


def test_integer_costs_and_scores_are_doubles(tmp_path: Path) -> None:
    session = load_session(tmp_path, PRICED)
    for _ in range(2):
        recorded = session.record(session.check("t"), result="", cost=2, score=2)
        assert recorded.errors == ()
    refused = session.check("t")
    assert refused.errors == ()
    assert [violation.text for violation in refused.violations] == [
        "budget `taxed` is used up: 6 of 6 in all per session"
    ]


def test_result_recorded_twice_counts_once(tmp_path: Path) -> None:
    session = load_session(tmp_path)
    decision = session.check("t")
    assert session.record(decision, result="a").counted
    assert not session.record(decision, result="b").counted


class Number(int):
    """A number of a host's own type."""


@pytest.mark.parametrize("kind", [int, Number])
def test_number_beyond_the_integers_that_are_kept_is_a_float(
    tmp_path: Path, kind: type[int]
) -> None:
    score = record_outcome(load_session(tmp_path), "x", score=kind(2**63 - 1)).score
    assert (score, type(score)) == (2.0**63, float)


def test_structured_result_is_handed_on_as_it_is(tmp_path: Path) -> None:
    session = load_session(tmp_path)
    assert session.record(session.check("t"), result={"n": [1]}).result == {"n": [1]}
