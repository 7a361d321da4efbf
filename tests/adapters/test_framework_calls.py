"""What the adapters of frameworks share: runs, calls, and the page that lists the frameworks."""

from __future__ import annotations

import asyncio
import importlib
import re
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from policyguard import Guard
from policyguard.adapters.calls import Approval, CallEnd, GuardedCall, as_result
from policyguard.adapters.runs import AgentRuns, Usage, begin_calling, calling, halt_text, offer

POLICY = Path("tests/adapters/frameworks/policy.yaml")
PAGE = Path("docs/integrations/frameworks.md")
MODULES = {
    "ag2": "ag2",
    "agent_framework": "agent_framework",
    "autogen": "autogen_agentchat",
    "crewai": "crewai",
    "llama_index": "llama_index.core",
    "smolagents": "smolagents",
    "claude_agent_sdk": "claude_agent_sdk",
    "google_adk": "google.adk",
    "langchain": "langchain",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "strands": "strands",
}


class Pause(Exception):  # noqa: N818 - a framework's signal
    """The framework will make the call again."""


@pytest.fixture
def guard() -> Iterator[Guard]:
    with Guard.load(POLICY) as guard:
        yield guard


def fail() -> str:
    raise ValueError("cannot parse: swordfish-1234")


def test_a_result_carries_its_advice(guard: Guard) -> None:
    end = GuardedCall(guard.session("s"), "lookup", {"word": "cat"}).run(lambda: "a word")
    assert end.text.startswith("a word\n\n")
    assert "the handbook" in end.text
    assert not end.failed


def test_an_error_is_recorded_redacted_and_carries_its_advice(guard: Guard) -> None:
    end = GuardedCall(guard.session("s"), "misread", {}).run(fail)
    assert end.failed
    assert end.text.startswith("ValueError: cannot parse: [word]\n\n")
    assert "the handbook" in end.text
    assert guard.session("s").in_flight == {}


def test_an_async_call_does_the_same(guard: Guard) -> None:
    async def run() -> CallEnd:
        async def misread() -> str:
            return fail()

        return await GuardedCall(guard.session("s"), "misread", {}).arun(misread)

    assert asyncio.run(run()).text.startswith("ValueError: cannot parse: [word]")


def test_what_is_no_text_is_given_its_advice_apart(guard: Guard) -> None:
    end = GuardedCall(guard.session("s"), "lookup", {}).run(lambda: {"word": "cat"})
    assert end.value == {"word": "cat"}
    assert "the handbook" in end.advice
    assert end.is_changed


def test_a_result_that_no_rule_concerns_is_the_tools_own(guard: Guard) -> None:
    result = {"word": "cat"}
    end = GuardedCall(guard.session("s"), "fetch", {}).run(lambda: result)
    assert end.value is result
    assert not end.is_changed


def test_a_call_that_pauses_does_not_count(guard: Guard) -> None:
    def pause() -> str:
        raise Pause

    for _ in range(9):  # five are allowed
        with pytest.raises(Pause):
            GuardedCall(guard.session("s"), "fetch", {}).run(pause, pauses=(Pause,))
    assert guard.session("s").check("fetch", {})


def test_an_error_that_counts_nowhere_is_redacted_all_the_same(guard: Guard) -> None:
    def close_and_fail() -> str:
        guard.close()
        return fail()

    end = GuardedCall(guard.session("s"), "misread", {}).run(close_and_fail)
    assert end.text == "ValueError: cannot parse: [word]"


def test_a_user_is_asked_and_approves(guard: Guard) -> None:
    call = GuardedCall(guard.session("s"), "deploy", {"target": "shop"})
    assert not call.check()
    assert call.needs_approval
    end = call.run(lambda: "deployed", ask=lambda _: Approval("ann"))
    assert end.text == "deployed"


def test_an_approver_is_not_asked_twice() -> None:
    asked: list[str] = []
    with Guard.load(POLICY, approver=lambda session, decision: asked.append("approver")) as guard:
        call = GuardedCall(guard.session("s"), "deploy", {"target": "shop"})
        end = call.run(lambda: "deployed", ask=lambda _: Approval("ann"))
    assert end.failed
    assert asked == ["approver"]


@pytest.mark.parametrize(
    ("answer", "approval"),
    [
        (True, Approval("user")),
        ({"type": "approve"}, Approval("user")),
        ({"type": "approve", "by": "ann", "labels": ["lead"]}, Approval("ann", ["lead"])),
        ({"type": "reject"}, None),
        ("yes", None),
        (1, None),
        (None, None),
    ],
)
def test_only_a_clear_yes_approves(answer: object, approval: Approval | None) -> None:
    assert Approval.read(answer, "user") == approval


def test_a_run_has_the_session_of_its_block(guard: Guard) -> None:
    runs = AgentRuns(guard)
    with guard.session("host", user="ann") as session:
        assert runs.open("thread") is session
    assert runs.open("thread").id == "thread"


def test_a_run_in_a_call_is_a_sub_agent(guard: Guard) -> None:
    runs = AgentRuns(guard)
    with guard.session("host") as session, calling(session):
        child = runs.open(runs.name("thread"))
        assert child.id.startswith("host/unnamed-")
        with calling(child):
            assert runs.open("inner").id == f"{child.id}/inner"
        with guard.session("explicit", parent=session) as explicit:
            assert runs.open("thread") is explicit
        runs.end(child)
        assert child.closed
    assert runs.name("thread") == "thread"


def test_a_call_of_another_guard_has_no_sub_agents_here(guard: Guard) -> None:
    with Guard.load(POLICY) as other:
        leave = begin_calling(other.session("theirs"))
        assert AgentRuns(guard).open("mine").id == "mine"
        leave()


def test_a_halt_is_told_until_the_next_turn(guard: Guard) -> None:
    session = guard.session("s")
    session.check("shutdown", {})
    assert halt_text(session) == "The run was halted by rules/stop."
    session.turn()
    assert halt_text(session) == ""


def test_usage_is_read_from_mappings_and_objects() -> None:
    counts = {"in": 5, "out": None, "details": SimpleNamespace(cached=3)}
    assert Usage.read(None, counts, "in", "out", "details.cached", "gone.far") == Usage("", 5, 0, 3)
    assert Usage.read("m", None, "in") == Usage("m")


@pytest.mark.parametrize(
    ("content", "failed", "expected"),
    [
        ("a", False, "a"),
        ("a", True, {"content": [{"type": "text", "text": "a"}], "isError": True}),
        (["a"], False, {"content": [{"type": "text", "text": "a"}], "isError": False}),
    ],
)
def test_content_is_read_as_an_mcp_result(content: object, failed: bool, expected: object) -> None:
    assert as_result(content, failed=failed) == expected


def test_a_guard_is_needed() -> None:
    with pytest.raises(TypeError, match="`guard` is a Guard"):
        AgentRuns("core")  # type: ignore[arg-type] # the mistake


@pytest.mark.parametrize(("module", "library"), MODULES.items())
def test_a_missing_framework_is_named_with_its_extra(module: str, library: str) -> None:
    try:
        if find_spec(library) is not None:
            pytest.skip("the framework is installed here")
    except ModuleNotFoundError:
        pass  # of `google.adk`, not even `google` is installed
    extra = module.replace("_", "-")
    with pytest.raises(ModuleNotFoundError, match=re.escape(f"policyguard-engine[{extra}]")):
        importlib.import_module(f"policyguard.adapters.{module}")


def test_each_framework_has_an_extra_a_page_and_a_story() -> None:
    pages = re.findall(r"^\| \[[^]]+\]\(([\w-]+)\.md\)", PAGE.read_text(), re.MULTILINE)
    assert sorted(page.replace("-", "_") for page in pages) == sorted(MODULES)
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page in pages:
        assert page in extras
        assert PAGE.with_name(f"{page}.md").exists()
        assert Path(f"tests/adapters/frameworks/test_{page.replace('-', '_')}.py").exists()


def test_agents_of_one_session_have_each_others_tools(guard: Guard) -> None:
    """They may run side by side: none is refused a tool because another began later."""
    with guard.session("s") as session:
        offer(session, ["lookup"])
        offer(session, ["fetch"])
        assert session.preview("lookup", {"word": "a"}).allowed
        assert session.preview("no_such_tool", {}).violations
