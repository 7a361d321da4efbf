"""Events written for other programs: OpenTelemetry spans, and findings for security teams."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from policyguard import Guard
from policyguard.cli import main
from policyguard.model.event import Admitted, Completed, Event, Refused
from policyguard.traces import Reader, Skipped
from policyguard.traces.writers.ocsf import write_ocsf
from policyguard.traces.writers.otlp import write_otlp

POLICY = """\
policyguard: 1
name: calls
rules:
  no-rm: {tools: [rm], effect: block, message: Not this.}
  ask-mail: {tools: [send_mail], effect: ask, message: A person decides.}
"""
DEMO = Path(__file__).parents[2] / "docs" / "demo" / "trace.jsonl"


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """Journals of an agent and its sub-agent."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    with Guard.load(policy, store=tmp_path / "state.db") as guard:
        agent = guard.session("run-1", agent="clerk", user="ann")
        helper = guard.session("run-1/helper", parent=agent)
        agent.record(agent.check("ls", {"path": "a"}, call="host-1"), result="b")
        agent.check("rm", {"path": "secret-name"})
        agent.check("rm", {"path": "secret-name"})
        helper.record(helper.check("cat", {"path": "x"}), error="no such file")
        helper.check("send_mail", {"to": "bob"})
        agent.spend(tokens=30, cost=0.5, model_calls=2)
        agent.check("sleep", {"s": 9})
        helper.end()
        agent.end()
    return tmp_path / "journal"


def convert(source: Path, target: Path, *options: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(
        main,
        ["traces", "convert", str(source), "-o", str(target), *options],
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in target.read_text().splitlines()]


def spans(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        span
        for line in lines
        for resource in line["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def attributes(owner: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in owner["attributes"]}


def read(path: Path) -> list[Event]:
    return [item for item in Reader().read(path) if not isinstance(item, Skipped)]


def test_sessions_and_calls_are_spans_of_one_trace(journals: Path, tmp_path: Path) -> None:
    found = spans(convert(journals, tmp_path / "spans.jsonl", "--to", "otlp"))
    by_name: dict[str, list[dict[str, Any]]] = {}
    for span in found:
        by_name.setdefault(span["name"], []).append(span)
    assert sorted(by_name) == [
        "execute_tool cat",
        "execute_tool ls",
        "execute_tool rm",
        "execute_tool send_mail",
        "execute_tool sleep",
        "invoke_agent",
        "invoke_agent clerk",
    ]
    assert len({span["traceId"] for span in found}) == 1
    assert len({span["spanId"] for span in found}) == len(found)
    (agent,), (helper,) = by_name["invoke_agent clerk"], by_name["invoke_agent"]
    assert agent["parentSpanId"] == ""
    assert helper["parentSpanId"] == agent["spanId"]
    assert by_name["execute_tool cat"][0]["parentSpanId"] == helper["spanId"]
    assert attributes(agent)["policyguard.tokens"] == "30"
    assert attributes(agent)["policyguard.cost"] == 0.5
    ls = by_name["execute_tool ls"][0]
    assert attributes(ls)["gen_ai.tool.call.id"] == "host-1"
    assert ls["events"][0]["name"] == "policyguard.decision"
    assert attributes(ls["events"][0])["policyguard.effect"] == "allow"
    refused = by_name["execute_tool rm"]
    assert [attributes(span)["error.type"] for span in refused] == ["policyguard.refused"] * 2
    assert attributes(by_name["execute_tool cat"][0])["error.type"] == "tool_error"
    for span in found:
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])


@pytest.mark.parametrize("write", [write_otlp, write_ocsf])
def test_content_is_written_only_if_asked_for(write: Callable[..., Iterator[bytes]]) -> None:
    events: list[Event] = [
        Refused(session="s", at=1, tool="rm", args={"path": "secret"}, violations=("rules/r",)),
        Admitted(session="s", at=2, call="c1", tool="rm", args={"path": "secret"}),
        Completed(session="s", at=3, call="c1", ok=True, text="secret"),
    ]
    assert b"secret" not in b"".join(write(events))
    assert b"secret" in b"".join(write(events, content=True))


def test_what_is_written_is_the_same_each_time(journals: Path, tmp_path: Path) -> None:
    for to in ("otlp", "ocsf"):
        first, second = (
            convert(journals, tmp_path / name, "--to", to) for name in ("a.jsonl", "b.jsonl")
        )
        assert first == second


def test_spans_read_back_are_the_calls_that_ran(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    convert(DEMO, path, "--to", "otlp", "--content")
    before, after = read(DEMO), read(path)

    def calls(events: list[Event]) -> list[tuple[str, str]]:
        return sorted(
            (event.tool, json.dumps(event.args, sort_keys=True))
            for event in events
            if isinstance(event, Admitted)
        )

    def failures(events: list[Event]) -> int:
        return sum(isinstance(event, Completed) and event.ok is False for event in events)

    assert calls(after) == calls(before)
    assert failures(after) == failures(before)
    assert not any(span.get("events") for span in spans(convert(DEMO, path, "--to", "otlp")))


def test_refusals_are_findings(journals: Path, tmp_path: Path) -> None:
    findings = convert(journals, tmp_path / "findings.jsonl", "--to", "ocsf")
    assert [finding["finding_info"]["analytic"]["uid"] for finding in findings] == [
        "rules/no-rm",
        "rules/no-rm",
        "rules/ask-mail",
    ]
    assert [finding["severity_id"] for finding in findings] == [3, 3, 2]
    assert len({finding["finding_info"]["uid"] for finding in findings}) == 3
    first = findings[0]
    assert (first["class_uid"], first["type_uid"], first["disposition_id"]) == (2004, 200401, 2)
    assert first["evidences"][0]["actor"] == {"user": {"name": "ann"}, "app_name": "clerk"}
    assert first["time"] > 1_600_000_000_000


def test_nothing_to_write_writes_no_file(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["traces", "convert", str(DEMO), "-o", str(tmp_path / "none"), "--to", "ocsf"]
    )
    assert result.exit_code == 1
    assert "0 findings written from 144 events" in result.stderr
    assert not (tmp_path / "none").exists()
