"""Services for the tests of adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.adapters.sessions import ServedSessions
from tests.adapters.running_service import RunningService
from tests.kept_policies import keep_compiled

_PARTS = """\
policyguard: 1
name: served
PARTS
budgets:
  searches: {tools: [search], calls: 3, per: session, ask_at: 3, extend: 5}
marks:
  reviewed: {set: host}
result_rules:
  keys: {finds: [secret_github_token], effect: redact}
rules:
  push: {tools: [push], unless: mark.reviewed, message: have it reviewed first}
  keep:
    tools: [Bash, delete]
    when: call.text.contains('canary')
    message: the canary stays
    examples: {match: [{delete: {path: canary}}], no_match: [{delete: {path: x}}]}
"""

POLICY = _PARTS.replace("PARTS", 'patterns: {secret_github_token: "ghp_[A-Za-z0-9]{36}"}')
OVER_CORE = _PARTS.replace("PARTS", "extends: [core]")
"""The same, and the signatures of `core`, which say what has failed."""

StartService = Callable[..., RunningService]


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    """A policy with rules, a budget and a mark."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    keep_compiled(str(file))
    return file


@pytest.fixture(scope="session")
def policy_over_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same over `core`, which is compiled once."""
    file = tmp_path_factory.mktemp("policy") / "policy.yaml"
    file.write_text(OVER_CORE)
    return file


@pytest.fixture
def sessions(policy_over_core: Path) -> Iterator[ServedSessions]:
    """The sessions of a guard with that policy."""
    with Guard.load(policy_over_core) as guard:
        yield ServedSessions(guard)


@pytest.fixture
def start_service(tmp_path: Path, policy_file: Path) -> Iterator[StartService]:
    """Starts services, which end with the test."""
    started: list[RunningService] = []

    def start(*options: str, policy: str = str(policy_file)) -> RunningService:
        started.append(RunningService(tmp_path, policy, *options))
        return started[-1]

    yield start
    for service in started:
        service.stop()


@pytest.fixture(scope="module")
def shared_service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """A service for the tests of a module that change nothing in it, with the module's policy."""
    folder = tmp_path_factory.mktemp("shared")
    policy = folder / "policy.yaml"
    policy.write_text(getattr(request.module, "POLICY", POLICY))
    running = RunningService(folder, str(policy))
    yield running
    running.stop()


@pytest.fixture
def service(start_service: StartService) -> RunningService:
    """A service that runs."""
    return start_service()
