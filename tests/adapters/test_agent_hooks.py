"""AGENT-HOOKS: policyguard as an interceptor in the contract's own reference host."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard

agent_hooks = pytest.importorskip("agent_hooks", reason="needs agent-hooks-sdk")

from agent_hooks import ApprovalOutcome, ApprovalResolution, EnforcementMode, Verdict  # noqa: E402
from agent_hooks.ctk.harness import RunOutcome, RunRecord, Scenario  # noqa: E402
from agent_hooks.ctk.reference import ReferenceHarness  # noqa: E402
from agent_hooks.ctk.runner import load_vectors, run_vector  # noqa: E402

from policyguard.adapters.agent_hooks import PolicyguardInterceptor  # noqa: E402

POLICY = """\
policyguard: 1
name: hooks
extends: [core]
budgets:
  spend: {cost: 1.00, per: session}
  steps: {model_calls: 4, per: turn}
rules:
  ask-mail: {tools: [send_mail], effect: ask, message: A person decides.}
  mind: {tools: [look], effect: advise, message: Look closely.}
  no-rm: {tools: [rm], effect: block, message: Not this.}
result_rules:
  keys: {finds: ["secret_*"], effect: redact}
"""
MISSING = "[Errno 2] No such file or directory: 'missing'"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy over `core`, which takes long to compile."""
    path = tmp_path_factory.mktemp("hooks") / "policy.yaml"
    path.write_text(POLICY)
    return path


def scenario(calls: list[tuple[str, dict[str, Any]]], results: Mapping[str, Any]) -> Scenario:
    """A run in which the model makes one call after the other."""
    script = [
        {
            "respond": {
                "content": "",
                "tool_calls": [{"id": f"call-{number}", "name": name, "args": args}],
                "finish_reason": "tool_calls",
            }
        }
        for number, (name, args) in enumerate(calls)
    ]
    script.append({"respond": {"content": "done", "tool_calls": [], "finish_reason": "stop"}})
    tools = [
        {"name": name, "behavior": [{"return": value, "is_error": name == "read_file"}]}
        for name, value in results.items()
    ]
    return Scenario.from_wire(
        {"input": {"content": "go", "role": "user"}, "tools": tools, "model_script": script}
    )


def run(interceptor: Any, played: Scenario, resolver: Any = None) -> RunRecord:
    harness = ReferenceHarness()
    harness.setup(played, [interceptor], resolver, EnforcementMode.ENFORCE)
    record = asyncio.run(harness.run())
    harness.teardown()
    return record


def verdicts(record: RunRecord, point: str) -> list[dict[str, Any]]:
    return [one["verdict"] for one in record.records if one["interception_point"] == point]


def test_a_loop_is_refused_and_the_run_goes_on(policy: Path) -> None:
    guard = Guard.load(policy)
    calls = [("read_file", {"path": "missing"})] * 3
    record = run(PolicyguardInterceptor(guard), scenario(calls, {"read_file": MISSING}))
    assert record.outcome is RunOutcome.COMPLETED
    assert [one["decision"] for one in verdicts(record, "pre_tool_call")] == [
        "allow",
        "allow",
        "deny",
    ]
    assert "was not run" in verdicts(record, "pre_tool_call")[2]["message"]
    assert len(record.tool_invocations) == 2


def test_advice_is_a_warning_and_a_secret_is_transformed(policy: Path) -> None:
    secret = "token ghp_" + "a1B2" * 9
    record = run(
        PolicyguardInterceptor(Guard.load(policy)), scenario([("look", {})], {"look": secret})
    )
    (before,), (after,) = verdicts(record, "pre_tool_call"), verdicts(record, "post_tool_call")
    assert before["warnings"][0]["reason"] == "rules/mind"
    assert after["decision"] == "transform"


def test_a_call_that_asks_runs_once_the_host_says_yes_and_counts(policy: Path) -> None:
    class Yes:
        def resolve(self, request: Any) -> ApprovalResolution:
            return ApprovalResolution(
                ApprovalOutcome.APPROVE, request.context_identity, Verdict.allow()
            )

    guard = Guard.load(policy)
    admitted: list[str] = []
    guard.on(lambda event: admitted.append(type(event).__name__))
    played = scenario([("send_mail", {"to": "ann"})], {"send_mail": "sent"})
    asked = run(PolicyguardInterceptor(guard), played)
    assert not asked.tool_invocations
    assert verdicts(asked, "pre_tool_call")[0]["approval"] == {}
    record = run(PolicyguardInterceptor(guard), played, Yes())
    assert len(record.tool_invocations) == 1
    assert admitted.count("Approved") == 1
    assert admitted.count("Admitted") == 1
    assert admitted.count("Completed") == 1


def test_the_use_of_the_model_is_spent(policy: Path) -> None:
    calls = [("note", {"n": number}) for number in range(6)]
    guard = Guard.load(policy)
    record = run(PolicyguardInterceptor(guard), scenario(calls, {"note": "ok"}))
    assert len(record.tool_invocations) == 3  # the fourth call of the model uses the budget up
    assert "budgets/steps" in verdicts(record, "pre_tool_call")[-1]["reason"]


def test_a_price_is_a_cost(policy: Path) -> None:
    interceptor = PolicyguardInterceptor(
        Guard.load(policy), price=lambda usage: usage["completion_tokens"] * 0.5
    )
    context = {
        "session": {"id": "s"},
        "agent": {"id": "a", "framework": "f"},
        "interception_point": "post_model_call",
        "usage": {"prompt_tokens": 1, "completion_tokens": 3},
    }
    call = {"id": "c", "name": "note", "args": {}}
    before = {**context, "interception_point": "pre_tool_call", "tool_call": call}
    asyncio.run(interceptor.intercept(context))
    refused = asyncio.run(interceptor.intercept(before))
    assert (refused.decision.value, refused.reason) == ("deny", "budgets/spend")


class Behind:
    """A scripted interceptor behind policyguard, which says nothing here."""

    def __init__(self, guard: Guard, scripted: Any) -> None:
        self._ours, self._scripted = PolicyguardInterceptor(guard), scripted

    async def intercept(self, context: dict[str, Any], /) -> Any:
        assert await self._ours.intercept(context) == Verdict.allow()
        verdict = self._scripted.intercept(context)
        return await verdict if asyncio.iscoroutine(verdict) else verdict


class HarnessWithPolicyguard(ReferenceHarness):
    def setup(self, scenario: Any, interceptors: list[Any], *args: Any, **options: Any) -> None:
        policy = Path(__file__).parent / "allows_all.yaml"
        behind = [Behind(Guard.load(policy), one) for one in interceptors]
        super().setup(scenario, behind, *args, **options)


@pytest.mark.parametrize("vector", load_vectors(None), ids=lambda vector: str(vector["id"]))
def test_conformance(vector: dict[str, Any]) -> None:
    result = asyncio.run(run_vector(HarnessWithPolicyguard(), vector))
    if result.status == "skip":
        pytest.skip(result.detail)
    assert result.status == "pass", "\n".join(result.failures)


def test_the_extra_is_named_where_it_is_missing() -> None:
    code = (
        "import sys\n"
        "sys.modules['agent_hooks'] = None\n"
        "try:\n    import policyguard.adapters.agent_hooks\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "policyguard-engine[agent-hooks]" in done.stdout
