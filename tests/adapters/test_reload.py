"""A changed policy is swapped in if its digest is named, and a broken one is not."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.adapters.client.connection import post
from policyguard.adapters.service.reload import PolicyReload
from tests.adapters.conftest import POLICY, StartService
from tests.adapters.running_service import RunningService

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets")

CHANGED = POLICY.replace("canary", "parrot").replace("calls: 3", "calls: 2")


def digest(policy: Path) -> str:
    with Guard.load(policy) as guard:
        return guard.digest


def test_sessions_go_on_under_the_new_policy(service: RunningService, policy_file: Path) -> None:
    assert service.check("s", "search", args={"q": 1}, call="h1")["allowed"]
    assert not service.check("s", "delete", args={"path": "canary"})["allowed"]
    policy_file.write_text(CHANGED)
    assert service.ask("/v1/reload", digest=digest(policy_file)) == (200, {"ok": True})
    assert service.check("s", "delete", args={"path": "canary"})["allowed"]
    assert not service.check("s", "delete", args={"path": "parrot"})["allowed"]
    status, recorded = service.ask("/v1/record", session="s", call="h1", result="found")
    assert (status, recorded["counted"]) == (200, True)
    assert service.check("s", "search", args={"q": 2})["allowed"]
    assert service.check("s", "search", args={"q": 3})["effect"] == "block"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(
            POLICY + "  x: {when: cal.tool == 'x'}\n", "unknown variable", marks=pytest.mark.slow
        ),
        (CHANGED, "its digest is"),
    ],
)
def test_what_is_broken_or_was_not_read_is_not_loaded(
    service: RunningService, policy_file: Path, text: str, reason: str
) -> None:
    old = digest(policy_file)
    policy_file.write_text(text)
    status, problem = service.ask("/v1/reload", digest=old)
    assert status == 409
    assert reason in problem["detail"]
    assert not service.check("s", "delete", args={"path": "canary"})["allowed"]


def test_a_policy_that_the_agent_could_write_is_not_reloaded_by_itself(
    service: RunningService, policy_file: Path
) -> None:
    policy_file.write_text(CHANGED)
    assert service.process.stderr is not None
    line = next(line for line in service.process.stderr if "has changed" in line)
    assert "can be written by the agent's user" in line
    assert not service.check("s", "delete", args={"path": "canary"})["allowed"]


def test_what_a_person_does_needs_the_token_of_admins(
    start_service: StartService, tmp_path: Path
) -> None:
    token_file = tmp_path / "admin"
    service = start_service("--admin-token-file", str(token_file))
    for path in ("approve", "grant", "revoke", "reload", "shutdown"):
        assert post(str(service.socket), f"/v1/{path}", b"{}")[0] == 401
    assert service.check("s", "read")["allowed"]
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    command = ["curl", "-s", "--unix-socket", str(service.socket), "http://x/v1/revoke"]
    command += ["-H", f"authorization: Bearer {token_file.read_text().strip()}"]
    command += ["-d", '{"id": "k1", "by": "ann"}']
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == {"revoked": False}


class InForce:
    """What a service has of a policy, without its sockets."""

    def __init__(self, policy: Path) -> None:
        self.guard = Guard.load(policy)

    before_swap: Callable[[], object] = staticmethod(lambda: None)

    async def swap(self, load: Callable[[], Guard]) -> None:
        self.before_swap()
        self.guard.close()
        self.guard = load()


def test_what_was_checked_is_what_is_loaded(policy_file: Path, tmp_path: Path) -> None:
    """An agent that can write the file may change it right after."""
    service = InForce(policy_file)
    service.before_swap = lambda: policy_file.write_text("policyguard: 1\nname: nothing\n")
    reload = PolicyReload(service, [str(policy_file)], tmp_path / "state.db")  # type: ignore[arg-type]  # that is all it uses
    policy_file.write_text(CHANGED)
    named = digest(policy_file)
    assert asyncio.run(reload.reload(named)) == ""
    assert service.guard.digest == named
    service.guard.close()


def test_a_policy_is_reloaded_by_itself_also_once_it_is_mended(
    policy_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where the agent's user can write none of the files, which root always can."""
    monkeypatch.setattr("policyguard.adapters.service.reload._is_replaceable", lambda _: False)

    def in_force(text: str) -> str:
        policy_file.write_text(text)
        for _ in range(2):
            asyncio.run(reload.look())
        session = service.guard.session("s")
        return next(
            word
            for word in ("canary", "parrot", "swan")
            if session.preview("delete", {"path": word}).effect == "block"
        )

    service = InForce(policy_file)
    reload = PolicyReload(service, [str(policy_file)], tmp_path / "state.db")  # type: ignore[arg-type]  # that is all it uses
    assert in_force(POLICY) == "canary"
    assert in_force(CHANGED) == "parrot"
    caplog.clear()
    assert in_force(CHANGED + "broken: [") == "parrot"
    assert len([one for one in caplog.messages if "stays" in one]) == 1
    assert in_force(CHANGED.replace("parrot", "swan")) == "swan"
    service.guard.close()
