"""The console in a real browser: people answer calls that wait, and no one else does."""

from __future__ import annotations

import http.client
import http.server
import json
import re
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright, which steers a browser, is not installed")
from playwright.sync_api import Browser, Page, expect

from policyguard.adapters.client.connection import post
from tests.adapters.conftest import StartService
from tests.adapters.running_service import RunningService
from tests.browser import chromium
from tests.kept_policies import keep_compiled

__all__ = ["chromium"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets")

POLICY = """
policyguard: 1
name: watched
patterns: {token: "tok_[a-z]+"}
journal: {args: keep, redact: [token]}
classify: {targets: [to]}
budgets: {steps: {calls: 1000}}
rules:
  deploys: {tools: [deploy], effect: ask, message: deploying needs a yes}
  payments: {tools: [pay], effect: ask, approval: {count: 2, within: 1h, from: [boss]}}
  deletes: {tools: [delete], message: nothing is deleted}
"""
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>alert(1)</script>\u202e\x1b[31m"

OpenConsole = Callable[..., Page]


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    keep_compiled(str(file))
    return file


def address(service: RunningService, by: str = "ann", *labels: str) -> str:
    status, answer = service.ask("/v1/console", by=by, labels=list(labels))
    assert status == 200, answer
    return str(answer["url"])


@pytest.fixture
def open_console(service: RunningService, chromium: Browser) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def open_(by: str = "ann", *labels: str, width: int = 1100, **context: Any) -> Page:
        context_of_page = chromium.new_context(viewport={"width": width, "height": 900}, **context)
        page = context_of_page.new_page()
        pages.append(page)
        page.console_lines = []  # type: ignore[attr-defined]  # what the test reads
        page.on("console", lambda one: page.console_lines.append(one.text))  # type: ignore[attr-defined]  # as above
        page.on("pageerror", lambda one: page.console_lines.append(str(one)))  # type: ignore[attr-defined]  # as above
        page.goto(address(service, by, *labels))
        expect(page.locator("#who")).to_contain_text(f"as {by}")
        expect(page.locator("#policy-name")).to_be_visible()
        return page

    yield open_
    for page in pages:
        assert page.console_lines == []  # type: ignore[attr-defined]  # as above
        page.context.close()


def ask_to_deploy(service: RunningService, call: str = "h1", **args: Any) -> Any:
    return service.check("s", "deploy", args={"to": "shop", **args}, call=call, agent="clerk")


def test_a_person_approves_and_the_call_runs(
    service: RunningService, open_console: OpenConsole
) -> None:
    page = open_console()
    expect(page.locator("#no-question")).to_be_visible()
    assert ask_to_deploy(service)["effect"] == "ask"
    question = page.locator(".question")
    expect(question).to_contain_text("deploying needs a yes")
    expect(page.locator("#status")).to_have_text("a call of deploy waits for you")
    assert page.title() == "(1) policyguard"
    question.get_by_role("button", name="Approve once").click()
    expect(page.locator("#status")).to_have_text("deploy is approved")
    expect(question).to_have_count(0)
    assert ask_to_deploy(service, "h2")["allowed"]
    service.ask("/v1/record", session="s", call="h2", result="done", agent="clerk")
    assert ask_to_deploy(service, "h3")["effect"] == "ask"


def test_a_word_with_a_no_reaches_the_model(
    service: RunningService, open_console: OpenConsole
) -> None:
    ask_to_deploy(service)
    page = open_console()
    page.get_by_label("Word to the model").fill("use staging")
    page.get_by_role("button", name="Deny").click()
    expect(page.locator("#status")).to_have_text("deploy is denied")
    assert "denied by ann: use staging" in ask_to_deploy(service, "h2")["message"]


def test_for_this_session_the_same_call_asks_no_more(
    service: RunningService, open_console: OpenConsole
) -> None:
    ask_to_deploy(service)
    page = open_console()
    page.get_by_role("button", name="Approve for this session").click()
    expect(page.locator("#status")).to_have_text("deploy is approved")
    for number in range(2):
        assert ask_to_deploy(service, f"h2{number}")["allowed"]
        service.ask("/v1/record", session="s", call=f"h2{number}", result="done", agent="clerk")
    assert ask_to_deploy(service, "h3", extra=1)["effect"] == "ask"
    other = service.check("t", "deploy", args={"to": "shop"}, call="h4", agent="clerk")
    assert other["effect"] == "ask"


def test_a_grant_is_tried_on_recent_calls_before_it_is_given(
    service: RunningService, open_console: OpenConsole
) -> None:
    page = open_console()
    for number, to in enumerate(("shop", "shop", "bank")):
        ask_to_deploy(service, f"h{number}", to=to, number=number)
    question = page.locator(".question").first
    question.get_by_text("Approve as a grant").click()
    preview = question.locator(".preview")
    expect(preview).to_contain_text("covers 1:")  # the narrowest: this very call
    question.get_by_label("What").select_option("target")
    expect(preview).to_contain_text("covers 2:")
    question.get_by_label("In").select_option("agent")
    question.get_by_role("button", name="Give this grant").click()
    expect(page.locator("#status")).to_contain_text("deploy is approved")
    assert ask_to_deploy(service, "h9", number=9)["allowed"]
    assert ask_to_deploy(service, "h8", to="bank", number=8)["effect"] == "ask"


def test_two_people_each_see_what_the_other_answered(
    service: RunningService, open_console: OpenConsole
) -> None:
    service.check("s", "pay", args={"eur": 5}, call="h1")
    ann, eve = open_console("ann", "boss"), open_console("eve")
    eve.get_by_role("button", name="Approve once").click()
    expect(eve.locator("#status")).to_contain_text("an answer counts from boss")
    ann.get_by_role("button", name="Approve once").click()
    expect(eve.locator(".question")).to_contain_text("1 of 2 people have approved it: ann")
    bob = open_console("bob", "boss")
    bob.get_by_role("button", name="Approve once").click()
    for page in (ann, eve, bob):
        expect(page.locator(".question")).to_have_count(0)
    assert service.check("s", "pay", args={"eur": 5}, call="h2")["allowed"]


def test_hostile_arguments_are_read_as_text(
    service: RunningService, open_console: OpenConsole
) -> None:
    service.check(f"s{HOSTILE}", f"deploy{HOSTILE}", args={HOSTILE: HOSTILE}, call="h0")
    ask_to_deploy(service, note=HOSTILE, key="tok_abc")
    page = open_console()
    expect(page.locator(".question")).to_contain_text("<script>alert(1)</script>")
    assert page.title() == "(1) policyguard"
    assert page.locator("img, iframe, script:not([src])").count() == 0
    shown = page.locator("body").inner_text()
    assert "tok_" not in shown
    assert "\x1b" not in shown
    page.locator("#sessions-list a").first.click()
    expect(page.locator("#session .call").first).to_be_visible()
    assert page.title() == "(1) policyguard"


def test_a_session_says_why_each_call_was_decided(
    service: RunningService, open_console: OpenConsole
) -> None:
    service.check("s", "delete", args={"path": "a"}, call="h1")
    page = open_console()
    expect(page.locator(".session")).to_contain_text("Last refusal: delete, nothing is deleted")
    page.get_by_role("link", name="s", exact=True).click()
    page.get_by_role("button", name="Why call 1 was decided so").click()
    expect(page.locator(".why")).to_contain_text("rules/deletes")
    expect(page.locator("#policy-list")).to_contain_text("1 × block")


def test_a_learned_constraint_is_revoked(
    service: RunningService, open_console: OpenConsole
) -> None:
    for number in range(3):
        call, args = f"h{number}", {"path": "/nowhere"}
        service.check("s", "read", args=args, call=call)
        service.ask("/v1/record", session="s", call=call, error="No such file or directory")
    page = open_console()
    found = page.locator(".constraint")
    expect(found).to_contain_text("because of")
    page.on("dialog", lambda dialog: dialog.accept())
    found.first.get_by_role("button").click()
    expect(page.locator("#status")).to_contain_text("is revoked")


def test_it_is_used_by_keyboard_alone(service: RunningService, open_console: OpenConsole) -> None:
    ask_to_deploy(service)
    page = open_console()
    expect(page.locator(".question")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the link that skips to the calls
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "message":
            break
    page.keyboard.type("not today")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("deploy is denied")
    expect(page.locator("#questions")).to_be_focused()


def test_what_is_typed_stays_while_others_answer(
    service: RunningService, open_console: OpenConsole
) -> None:
    service.check("s", "pay", args={"eur": 5}, call="h1")
    page = open_console("ann", "boss")
    field = page.get_by_label("Word to the model")
    field.fill("half a sen")
    asked = {"session": "s", "call": "h1", "by": "bob", "labels": ["boss"]}
    service.ask("/v1/approve", **asked)
    expect(page.locator(".question")).to_contain_text("1 of 2")
    expect(field).to_have_value("half a sen")
    expect(field).to_be_focused()
    page.keyboard.type("tence")
    expect(field).to_have_value("half a sentence")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_accessible(
    service: RunningService, open_console: OpenConsole, width: int, scheme: str, tmp_path: Path
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    ask_to_deploy(service)
    service.check("s", "delete", args={"path": "a"}, call="h2", agent="clerk")
    page = open_console(width=width, color_scheme=scheme)
    page.get_by_role("link", name="s", exact=True).first.click()
    page.get_by_role("button", name="Why call 1 was decided so").click()
    page.get_by_text("Approve as a grant").click()
    expect(page.locator(".preview")).to_contain_text("Covers")
    page.screenshot(path=tmp_path / f"{width}-{scheme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = axe.run(page)
    assert found.response["violations"] == [], found.generate_report()


def test_ten_thousand_calls_stay_quick(service: RunningService, open_console: OpenConsole) -> None:
    page = open_console()
    for number in range(1100):
        service.check("s", f"look{number % 7}", args={"path": f"{number}"}, call=f"h{number}")
        if number == 3:
            page.get_by_role("link", name="s", exact=True).click()
    expect(page.locator("#session-head")).to_contain_text("1,100 calls", timeout=20_000)
    assert page.locator("#session .call").count() <= 110
    assert page.locator("body *").count() < 3000
    page.locator("#session-earlier button").click()
    expect(page.locator("#session .call")).to_have_count(200)


def request(url: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    place = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=10)
    body = headers.pop("body", None)
    method = "GET" if body is None else "POST"
    connection.request(
        method, path, body, {name.replace("_", "-"): v for name, v in headers.items()}
    )
    answer = connection.getresponse()
    found = (
        answer.status,
        {name.lower(): value for name, value in answer.getheaders()},
        answer.read(),
    )
    connection.close()
    return found


def test_other_sites_and_wrong_tokens_get_nothing(shared_service: RunningService) -> None:
    ask_to_deploy(shared_service)
    url = address(shared_service)
    token = urllib.parse.urlsplit(url).fragment
    right = f"Bearer {token}"
    answer = json.dumps({"session": "s", "call": "h1", "how": "once"})
    assert request(url, "/fragment/questions", authorization=right)[0] == 200
    for path in ("/fragment/questions", "/who", "/stream", "/fragment/nothing", "/else"):
        assert request(url, path)[0] == 401
        assert request(url, path, authorization="Bearer " + "x" * 43)[0] == 401
        assert request(url, path, authorization="Bearer é")[0] == 401
    for headers, status in (
        ({"host": "evil.example"}, 421),  # its name resolves to this machine
        ({"host": "evil.example:80", "origin": "http://evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
    ):
        for path in ("/answer", "/revoke"):
            found = request(url, path, authorization=right, body=answer, **headers)
            assert found[0] == status, headers
    assert request(url, "/answer", body=answer)[0] == 401
    assert ask_to_deploy(shared_service, "h2")["effect"] == "ask"


ATTACK = """
<!doctype html><title>attack</title><iframe id="frame" src="CONSOLE"></iframe>
<form id="form" method="post" target="_blank" enctype="text/plain" action="CONSOLE/answer">
<input name='{"session":"s","call":"h1","how":"once","x":"' value='"}'></form>
<script>
const outcomes = []
const attempt = async (name, options) => {
  try {
    const found = await fetch("CONSOLE" + name, options)
    outcomes.push(found.type === "opaque" ? "opaque" : await found.text())
  } catch (error) { outcomes.push("refused") }
}
const body = JSON.stringify({ session: "s", call: "h1", how: "once" })
addEventListener("load", async () => {
  await attempt("/fragment/questions", {})
  await attempt("/fragment/questions", { mode: "no-cors", credentials: "include" })
  await attempt("/answer", { method: "POST", mode: "no-cors", credentials: "include", body })
  await attempt("/answer", { method: "POST", headers: { authorization: "Bearer x" }, body })
  let inside = "none"
  try { inside = document.getElementById("frame").contentDocument?.body.innerText } catch {}
  document.title = JSON.stringify({ outcomes, inside })
  document.getElementById("form").submit()
})
</script>
"""


class _Site(http.server.BaseHTTPRequestHandler):
    page = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_: object) -> None:
        pass


def test_a_page_of_another_site_can_do_nothing(
    service: RunningService, open_console: OpenConsole
) -> None:
    """In the same browser, with the console open beside it."""
    ask_to_deploy(service)
    console = open_console()
    place = console.url.rstrip("/")
    _Site.page = ATTACK.replace("CONSOLE", place).encode()
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    attacker = console.context.new_page()
    attacker.goto(f"http://localhost:{site.server_port}/")
    expect(attacker).to_have_title(re.compile("outcomes"))
    found = json.loads(attacker.title())
    assert found["outcomes"][0] == found["outcomes"][3] == "refused"  # nothing is read
    assert "deploy" not in json.dumps(found)
    attacker.wait_for_timeout(300)  # for the form
    assert ask_to_deploy(service, "h2")["effect"] == "ask"
    frame = attacker.frames[1]
    assert "policyguard" not in frame.content()
    site.shutdown()
    site.server_close()


def test_a_foreign_name_that_resolves_here_gets_nothing(
    service: RunningService, chromium: Browser
) -> None:
    url = address(service).replace("127.0.0.1", "evil.example")
    page = chromium.new_page()
    answer = page.goto(url)
    assert answer is not None
    assert answer.status == 421
    page.close()


def test_no_site_may_show_it_in_a_frame_or_read_it(shared_service: RunningService) -> None:
    status, headers, body = request(address(shared_service), "/")
    assert status == 200
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert b"ann" not in body  # the page itself is the same for everyone
    assert "access-control-allow-origin" not in headers


def test_wrong_answers_are_refused(shared_service: RunningService) -> None:
    ask_to_deploy(shared_service)
    url = address(shared_service)
    right = f"Bearer {urllib.parse.urlsplit(url).fragment}"
    for asked in (
        {},
        [],
        {"session": "s", "call": "h1", "how": "always"},
        {"session": "s", "call": "h1", "how": "grant"},
        {
            "session": "s",
            "call": "h1",
            "how": "grant",
            "remember": "all",
            "expires": 9,
            "scope": "session",
        },
        {
            "session": "s",
            "call": "h1",
            "how": "grant",
            "remember": "tool",
            "expires": -1,
            "scope": "session",
        },
        {
            "session": "s",
            "call": "h1",
            "how": "grant",
            "remember": "tool",
            "expires": "nan",
            "scope": "x",
        },
    ):
        status, _, body = request(url, "/answer", authorization=right, body=json.dumps(asked))
        assert (status, b"Traceback" in body) == (400, False), asked
    asked = {"session": "s", "call": "h7", "how": "once"}
    status, _, body = request(url, "/answer", authorization=right, body=json.dumps(asked))
    assert (status, json.loads(body)["answered"]) == (200, False)
    assert ask_to_deploy(shared_service, "h2")["effect"] == "ask"


def test_admins_alone_open_it_where_there_are_admins(
    start_service: StartService, tmp_path: Path
) -> None:
    service = start_service("--admin-token-file", str(tmp_path / "admin"))
    assert service.ask("/v1/console", by="ann")[0] == 401


def test_a_killed_service_loses_no_question(
    service: RunningService, start_service: StartService, chromium: Browser
) -> None:
    ask_to_deploy(service)
    service.process.kill()
    service.process.wait()
    again = start_service()
    page = chromium.new_page()
    page.goto(address(again))
    question = page.locator(".question")
    expect(question).to_contain_text('"to": "shop"')
    page.get_by_role("link", name="s", exact=True).click()  # of a session that is still closed
    expect(page.locator("#session .call")).to_contain_text("deploy")
    question.get_by_role("button", name="Approve once").click()
    expect(page.locator("#status")).to_have_text("deploy is approved")
    assert ask_to_deploy(again, "h2")["allowed"]
    page.close()


def test_the_command_starts_the_service_and_shows_the_address(
    tmp_path: Path, policy_file: Path
) -> None:
    socket, store = tmp_path / "run" / "own.sock", tmp_path / "own" / "state.db"
    options = ["--store", str(store), "--socket", str(socket), "--by", "ann", "--no-browser"]

    def console(policy: Path) -> tuple[int, str]:
        command = [sys.executable, "-m", "policyguard", "console", "--policy", str(policy)]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    broken = tmp_path / "broken.yaml"
    broken.write_text("policyguard: 1\nname: broken\nrulez: {}\n")
    code, said = console(broken)
    assert (code, "did you mean `rules`" in said) == (2, True)
    code, said = console(policy_file)
    assert code == 0
    url = said.splitlines()[0]
    token = f"Bearer {urllib.parse.urlsplit(url).fragment}"
    assert json.loads(request(url, "/who", authorization=token)[2])["by"] == "ann"
    post(str(socket), "/v1/shutdown", b"{}")
