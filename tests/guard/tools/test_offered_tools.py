"""What the host offers: unknown tools are refused with the names that exist, banned ones listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policyguard import ClosedError, Guard, Session, ToolsOffered

POLICY = """
policyguard: 1
name: office
classify:
  classes:
    - {class: danger, tools: ["drop_*"]}
    - {class: deep, when: "size(call.args) > 1"}
limits:
  default: {refusals: {max: 3}}
  classes: {danger: {repeat: {max: 0}}}
rules:
  no-shell: {tools: [bash, "mcp__os__*"], effect: block}
  ask-mail: {tools: [mail], effect: ask}
  no-night: {tools: [pay], when: "call.args.at == 'night'"}
  only-watched: {tools: [watch], effect: block, mode: observe}
"""
TOOLS = ["read_file", "search", "bash", "drop_table", "mail", "pay", "watch", "mcp__os__kill"]


def _guard(folder: Path, text: str = POLICY, **options: Any) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(text)
    return Guard.load(file, **options)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    session = _guard(tmp_path).session("s")
    session.offer(TOOLS)
    return session


def test_the_first_unknown_tool_is_answered_with_the_tools(session: Session) -> None:
    first = session.check("serch", {"query": "a"})
    assert not first.allowed
    (violation,) = first.violations
    assert violation.id == "session/unknown-tool"
    assert "there is no tool `serch`; did you mean `search`?" in violation.text
    assert all(f"`{name}`" in first.message for name in TOOLS)

    second = session.check("fetch_url", {"url": "a"})
    assert not second.allowed
    assert "read_file" not in second.message
    assert "use a tool that you have" in second.message


def test_an_agent_that_goes_on_is_halted(session: Session) -> None:
    effects = [session.check(f"tool_{n}", {}).effect for n in range(5)]
    assert effects == ["block", "block", "block", "halt", "halt"]


def test_known_tools_and_pseudo_tools_run(session: Session) -> None:
    for name in ("read_file", "search", "@spawn"):
        assert session.check(name, {}).allowed


@pytest.mark.parametrize(
    ("offered", "tool", "server"),
    [
        ("mcp__fs__read", "read", "fs"),
        ("mcp__fs__read", "mcp__fs__read", ""),
        ("mcp_fs_read", "read", "fs"),
        ("fs__read", "read", "fs"),
        ("read", "read", "fs"),
    ],
)
def test_a_servers_tool_is_known_by_each_of_its_names(
    session: Session, offered: str, tool: str, server: str
) -> None:
    session.offer([offered])
    assert session.check(tool, {}, server=server).allowed
    assert not session.check("write", {}, server="fs").allowed


def test_what_is_never_allowed_is_disabled_from_the_start(session: Session) -> None:
    assert session.disabled == {
        "bash": "rules/no-shell refuses every call",
        "drop_table": "limits/classes:danger/repeat refuses every call",
        "mcp__os__kill": "rules/no-shell refuses every call",
    }
    assert not session.check("bash", {"command": "ls"}).allowed
    assert not session.check("drop_table", {}).allowed


def test_without_an_offer_nothing_is_unknown_or_listed(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("s")
    assert session.check("serch", {}).allowed
    assert session.disabled == {}


def test_the_latest_offer_counts(session: Session) -> None:
    assert not session.check("later", {}).allowed
    session.offer([*TOOLS, "later"])
    assert session.check("later", {}).allowed
    session.offer([])
    refused = session.check("later", {})
    assert not refused.allowed
    assert "you have no tools" in refused.message
    assert session.disabled == {}


def test_an_offer_survives_a_restart_and_is_written_once(tmp_path: Path) -> None:
    store = tmp_path / "state" / "store.db"
    guard = _guard(tmp_path, store=store)
    events: list[Any] = []
    guard.on(events.append)
    session = guard.session("s")
    session.offer(TOOLS)
    session.offer([*TOOLS, *TOOLS])
    assert sum(isinstance(event, ToolsOffered) for event in events) == 1
    assert "You have" in session.check("serch", {}).message
    guard.close()

    session = _guard(tmp_path, store=store).session("s")
    refused = session.check("serch", {})
    assert not refused.allowed
    assert "You have" not in refused.message
    assert "bash" in session.disabled


def test_an_observing_guard_refuses_no_unknown_tool(tmp_path: Path) -> None:
    session = _guard(tmp_path, POLICY + "mode: observe\n").session("s")
    session.offer(["read_file"])
    decision = session.check("serch", {})
    assert decision.allowed
    assert [one.id for one in decision.would] == ["session/unknown-tool"]
    assert session.disabled == {}


def test_hostile_names_are_shown_harmless_and_short(session: Session) -> None:
    evil = "search\x1b[31m\n" + "x" * 500
    session.offer([evil, evil + "y"])
    refused = session.check(evil[:-1], {})
    assert not refused.allowed
    assert "\x1b" not in refused.message
    assert "use a tool that you have" in refused.message


def test_of_many_tools_some_are_named(session: Session) -> None:
    session.offer([f"tool_{n}" for n in range(200)])
    message = session.check("missing", {}).message
    assert "you have `tool_0`, `tool_1`" in message
    shown = message.count("`tool_")
    assert shown > 10
    assert f" and {200 - shown} more [" in message
    assert "use a tool that you have" in message


def test_an_offer_is_a_list_of_names_for_an_open_session(session: Session) -> None:
    for wrong in ("search", b"search", None, 5):
        with pytest.raises(TypeError, match="list of text"):
            session.offer(wrong)  # type: ignore[arg-type]  # wrong on purpose
    for empty in ("", " "):
        with pytest.raises(ValueError, match="empty name"):
            session.offer(["search", empty])
    assert not session.check("drop_nothing")  # the last offer holds
    session.close()
    with pytest.raises(ClosedError):
        session.offer(["search"])
