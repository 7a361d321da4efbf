"""The stories that policyguard is for, in the real hosts with a scripted model on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from policyguard.adapters.proof.script import Conversation, Step, ToolCall
from policyguard.model.event import Admitted, Event, Refused
from policyguard.traces import Reader, expand
from tests.adapters.real_host import HOSTS, RealHost, knows, lines, steps

pytestmark = pytest.mark.slow

POLICY = """\
policyguard: 1
name: story
extends: [core, self-protection]
budgets:
  steps: {calls: 6, per: session, effect: halt, message: that is enough}
result_rules:
  keys: {finds: ["secret_*"], effect: redact}
"""
SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealHost]:
    real = RealHost(request.param, tmp_path, POLICY)
    yield real
    real.end_service()


def decided(host: RealHost, kind: type[Event]) -> int:
    """Return how many calls were admitted or refused so far."""
    return sum(
        isinstance(item, kind)
        for path in expand([host.store.parent / "journal"])
        for item in Reader().read(path)
    )


def test_a_missing_file_is_read_twice(host: RealHost) -> None:
    requests = host.run(*[[host.read(host.project / "missing.txt")]] * 4)
    assert decided(host, Admitted) == 2
    assert decided(host, Refused) == 2
    assert knows(requests, "was not run")


def test_what_was_learned_holds_after_a_restart(host: RealHost) -> None:
    def script(said: Conversation) -> Step:
        if said.number == 2:
            host.end_service()
        return [host.read(host.project / "missing.txt")] if said.number < 4 else "done"

    host.run(script)
    assert decided(host, Admitted) == 2
    assert decided(host, Refused) == 2


def test_what_polls_is_left_alone(host: RealHost) -> None:
    """Gemini CLI itself ends a run that makes the same call five times."""
    (host.project / "status").write_text("pending\n")
    host.run(*steps(host, *["sleep 0.1; cat status"] * 4))
    assert decided(host, Admitted) == 4


def test_the_budget_stops_the_run(host: RealHost) -> None:
    log = host.project / "log"
    host.run(*steps(host, *[f"echo {number} >> {log}" for number in range(9)]))
    assert lines(log) == [str(number) for number in range(6)]


def test_the_agent_can_change_neither_policy_nor_store(host: RealHost) -> None:
    policy, store = host.policy.read_text(), host.store
    host.run(
        *steps(
            host,
            "echo begin",
            f"echo 'policyguard: 1' > {host.policy}",
            f"rm -rf {store.parent}",
            f"sed -i s/halt/advise/ {host.policy}",
        )
    )
    assert host.policy.read_text() == policy
    assert store.exists()


def test_a_file_is_protected_wherever_the_shell_has_gone(tmp_path: Path) -> None:
    """Claude Code's shell keeps `cd` from call to call."""
    rule = "rules: {keep: {commands: [rm], paths: [settings.json], effect: block}}\n"
    host = RealHost("claude-code", tmp_path, f"policyguard: 1\nname: keep\nextends: [core]\n{rule}")
    try:
        ours, theirs = host.project / "settings.json", host.project / "sub" / "settings.json"
        theirs.parent.mkdir()
        ours.touch()
        theirs.touch()
        requests = host.run(*steps(host, "cd sub", "rm settings.json", "rm ../settings.json"))
        assert not theirs.exists()
        assert ours.exists()
        assert knows(requests, "rule `keep` forbids this call")
    finally:
        host.end_service()


def test_a_secret_in_a_result_does_not_reach_the_model(tmp_path: Path) -> None:
    host = RealHost("claude-code", tmp_path, POLICY)
    (host.project / "notes.txt").write_text(f"the token is {SECRET}\n")
    requests = host.run(
        [host.shell("cat notes.txt")],
        [ToolCall("Read", {"file_path": str(host.project / "notes.txt")})],
    )
    assert knows(requests, "[secret_github_token]")
    assert not knows(requests, SECRET)
