"""The full name of an MCP tool is taken apart where a call enters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.model.tool_name import parse_tool_name

POLICY = """
policyguard: 1
name: mcp
limits: {tools: {"mcp__fs__*": {failures: {max: 1, refuse: tool}}}}
rules: {ask: {tools: [pay], effect: ask, message: "may I {call.tool}?"}}
"""


def _guard(folder: Path) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY)
    return Guard.load(file, store=folder / "state" / "store.db")


@pytest.mark.parametrize(
    ("name", "server", "expected"),
    [
        ("mcp__fs__read", "", ("read", "fs")),
        ("mcp__fs__a__b", "", ("a__b", "fs")),
        ("mcp__fs__read", "fs", ("read", "fs")),
        ("mcp__a__b__read", "a__b", ("read", "a__b")),
        ("mcp__fs__read", "other", ("read", "other")),
        ("mcp__fs__", "fs", ("mcp__fs__", "fs")),
        ("mcp__fs__", "", ("mcp__fs__", "")),
        ("mcp__fs__", "other", ("mcp__fs__", "other")),
        ("mcp____read", "", ("mcp____read", "")),
        ("mcp__x", "", ("mcp__x", "")),
        ("read", "fs", ("read", "fs")),
        ("Mcp__fs__read", "", ("Mcp__fs__read", "")),
    ],
)
def test_a_name_is_split(name: str, server: str, expected: tuple[str, str]) -> None:
    tool, server, host_tool = parse_tool_name(name, server)
    assert (tool, server) == expected
    assert host_tool == ("" if tool == name else name)


def test_decisions_and_messages_keep_the_name_of_the_host(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("s")
    decision = session.check("mcp__bank__pay", {"n": 1})
    assert decision.tool == "mcp__bank__pay"
    assert "may I mcp__bank__pay?" in decision.violations[0].text
    assert session.preview("pay", {"n": 1}, server="bank").fingerprint == decision.fingerprint
    session.approve(decision, by="ann")
    assert session.check("pay", {"n": 1}, server="bank").allowed


def test_a_resumed_session_knows_the_tool_by_both_forms(tmp_path: Path) -> None:
    guard = _guard(tmp_path)
    session = guard.session("s")
    session.record(session.check("mcp__fs__read", {"n": 1}), error="no")
    assert list(session.disabled) == ["mcp__fs__read"]
    guard.close()
    (journal,) = tmp_path.rglob("*.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    (admitted,) = [event for event in events if event["event"] == "admitted"]
    assert admitted["tool"] == "read"
    assert admitted["server"] == "fs"
    assert admitted["host_tool"] == "mcp__fs__read"

    session = _guard(tmp_path).session("s")
    assert list(session.disabled) == ["mcp__fs__read"]
    assert not session.check("read", {"n": 2}, server="fs").allowed
    assert session.check("read", {"n": 2}, server="db").allowed


def test_both_forms_share_a_template_of_journal_lines(tmp_path: Path) -> None:
    guard = _guard(tmp_path)
    session = guard.session("s")
    for name, server in (("read", "db"), ("mcp__db__read", ""), ("read", "db")):
        session.record(session.check(name, {"n": 1}, server=server), result="x")
    guard.close()
    (journal,) = tmp_path.rglob("*.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    found = [
        (event["tool"], event["server"], event.get("host_tool"))
        for event in events
        if event["event"] == "admitted"
    ]
    assert found == [("read", "db", None), ("read", "db", "mcp__db__read"), ("read", "db", None)]
