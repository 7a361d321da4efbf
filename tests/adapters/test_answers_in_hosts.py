"""An agent in a real host asks, a person clicks in a browser, and the call runs or does not."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright, which steers a browser, is not installed")
from playwright.sync_api import Browser, Page

from policyguard.adapters.client.connection import Unavailable, post
from tests.adapters.real_host import HOSTS, RealHost, knows, steps
from tests.browser import chromium

__all__ = ["chromium"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets"),
]

POLICY = """\
policyguard: 1
name: asks
extends: [core]
rules:
  canary: {when: call.text.contains('canary'), effect: ask, message: the canary is dear to us}
"""


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealHost]:
    real = RealHost(request.param, tmp_path, POLICY, wait=60)
    yield real
    real.end_service()


def ask(host: RealHost, path: str, **fields: object) -> dict[str, object] | None:
    try:
        status, _, body = post(str(host.socket), path, json.dumps(fields).encode())
    except Unavailable:
        return None
    return json.loads(body) if status == 200 else None


def run_while(host: RealHost, command: str, person: Callable[[], None]) -> list[str]:
    """Run an agent that makes a call, in a thread; `person` answers meanwhile."""
    found: list[str] = []
    agent = threading.Thread(target=lambda: found.extend(host.run(*steps(host, command))))
    agent.start()
    deadline = time.monotonic() + 60
    while not (ask(host, "/v1/approvals") or {}).get("approvals"):
        assert time.monotonic() < deadline
        assert agent.is_alive(), found[-1:]
        time.sleep(0.05)
    person()
    agent.join(120)
    return found


def open_console(host: RealHost, chromium: Browser) -> Page:
    opened = ask(host, "/v1/console", by="ann")
    assert opened is not None
    page = chromium.new_page()
    page.goto(str(opened["url"]))
    page.wait_for_selector(".question")
    return page


def test_a_click_lets_the_call_run(host: RealHost, chromium: Browser) -> None:
    canary = host.project / "canary"
    canary.write_text("dear")

    def click() -> None:
        page = open_console(host, chromium)
        page.get_by_role("button", name="Approve once").click()
        page.wait_for_selector("#no-question")
        page.close()

    requests = run_while(host, f"rm {canary}", click)
    assert not canary.exists()
    assert not knows(requests, "was not run")


def test_a_word_with_a_no_is_read_by_the_model(host: RealHost, chromium: Browser) -> None:
    canary = host.project / "canary"
    canary.write_text("dear")

    def click() -> None:
        page = open_console(host, chromium)
        page.get_by_label("Word to the model").fill("move it instead")
        page.get_by_role("button", name="Deny").click()
        page.wait_for_selector("#no-question")
        page.close()

    requests = run_while(host, f"rm {canary}", click)
    assert canary.exists()
    assert knows(requests, "denied by ann: move it instead")
