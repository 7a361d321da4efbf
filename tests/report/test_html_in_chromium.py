"""The HTML report in a real browser: nothing runs, nothing is fetched, everyone can read it.

Screenshots stay in pytest's temporary folder.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from policyguard.report.replay.html import render_html
from tests.report.sample import HOSTILE, LONG, figures

pytest.importorskip("playwright", reason="playwright, which steers a browser, is not installed")
from playwright.sync_api import Browser, Page

from tests.browser import chromium

__all__ = ["chromium"]

TEXTS = {"plain": "plain", "hostile": HOSTILE, "long": LONG}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page for each kind of text in the recording."""
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name, text in TEXTS.items():
        (folder / name).mkdir()
        made[name] = folder / f"{name}.html"
        made[name].write_text(render_html(figures(folder / name, hostile=text)), encoding="utf-8")
    return made


INTRUSION = """address => {
    window.refused = [];
    document.addEventListener('securitypolicyviolation',
        event => window.refused.push(event.effectiveDirective));
    for (const [tag, text, path] of [
        ['script', "document.title = 'owned'", ''],
        ['style', 'main { display: none }', ''],
        ['img', '', '/x'],
        ['iframe', '', '/y'],
    ]) {
        const made = document.createElement(tag);
        made.textContent = text;
        if (path) made.src = address + path;
        document.body.append(made);
    }
    const heading = document.querySelector('h1');
    heading.setAttribute('onclick', "document.title = 'owned'");
    heading.click();
}"""
"""What an attacker would do who had got markup into the page."""


class Opened(NamedTuple):
    """A page in the browser, what it has asked for, and what stands in the console."""

    page: Page
    requests: list[str]
    console: list[str]


def _open(browser: Browser, file: Path, *, width: int = 1100, **context: Any) -> Opened:
    page = browser.new_page(viewport={"width": width, "height": 900}, **context)
    opened = Opened(page, [], [])
    page.on("request", lambda request: opened.requests.append(request.url))
    page.on("console", lambda message: opened.console.append(message.text))
    page.on("pageerror", lambda error: opened.console.append(str(error)))
    page.on("dialog", lambda dialog: opened.console.append(dialog.message))
    page.goto(file.as_uri())
    return opened


def _unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")


def _received(server: socket.socket) -> bytes:
    """What was sent there. For a frame, Chromium connects before it looks whether it may."""
    received = b""
    with contextlib.suppress(TimeoutError):
        while True:
            connection, _ = server.accept()
            connection.settimeout(0.5)
            with connection, contextlib.suppress(TimeoutError):
                received += connection.recv(1000)
    return received


def _comes_true(page: Page, expression: str) -> bool:
    """Within two seconds. Playwright's own way of waiting is one that the page forbids."""
    for _ in range(40):
        if page.evaluate(expression):
            return True
        page.wait_for_timeout(50)
    return False


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_runs_nothing_is_fetched_and_the_console_is_empty(
    chromium: Browser, pages: dict[str, Path], name: str
) -> None:
    page, requests, console = _open(chromium, pages[name])
    _unfold(page)
    page.mouse.move(300, 300)
    page.wait_for_timeout(200)
    assert requests == [pages[name].as_uri()]
    assert console == []
    assert page.title().startswith("policyguard simulate: new ")
    assert page.evaluate("document.querySelectorAll('script, img, link, base').length") == 0


def test_hostile_text_is_read_as_text(chromium: Browser, pages: dict[str, Path]) -> None:
    page = _open(chromium, pages["hostile"]).page
    shown = page.inner_text("#timelines")
    assert "<script>document.title='owned'</script>" in shown
    assert '<img src=x onerror=\\"document.title=' in shown
    assert page.inner_text("#rules table").count("rules/no-secrets") == 1


def test_what_is_not_ours_could_not_run_even_as_markup(
    chromium: Browser, pages: dict[str, Path]
) -> None:
    page = _open(chromium, pages["plain"]).page
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        page.evaluate(INTRUSION, f"http://127.0.0.1:{server.getsockname()[1]}")
        assert _comes_true(page, "window.refused.length >= 5")
        assert _received(server) == b""
    assert sorted(page.evaluate("window.refused")) == [
        *("frame-src", "img-src", "script-src-attr", "script-src-elem", "style-src-elem")
    ]
    assert page.title() != "owned"
    assert page.is_visible("main")


@pytest.mark.parametrize("width", [320, 360, 1100])
@pytest.mark.parametrize("name", TEXTS)
def test_no_page_is_wider_than_its_window(
    chromium: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    page = _open(chromium, pages[name], width=width, is_mobile=width < 1000).page
    _unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    outside = page.evaluate(
        """() => [...document.querySelectorAll('main p, main li, main h2, main h3, summary')]
            .filter(one => one.getBoundingClientRect().right > innerWidth + 1).length"""
    )
    assert outside == 0


def test_a_table_that_is_too_wide_scrolls_by_itself(
    chromium: Browser, pages: dict[str, Path]
) -> None:
    page = _open(chromium, pages["plain"], width=360).page
    box = page.locator("#rules .scroll")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    box.focus()
    page.keyboard.press("ArrowRight")
    assert _comes_true(page, "document.querySelector('#rules .scroll').scrollLeft > 0")


def test_it_follows_the_reader_s_colours(
    chromium: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    brightness = {}
    for scheme, width in (("light", 1100), ("dark", 360)):
        page = _open(chromium, pages["plain"], width=width, color_scheme=scheme).page
        received = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)")
        brightness[scheme] = sum(map(int, received))
        page.screenshot(path=tmp_path / f"{scheme}.png", full_page=True)
    assert brightness["light"] > 600
    assert brightness["dark"] < 150


def test_it_can_be_used_with_the_keyboard_alone(chromium: Browser, pages: dict[str, Path]) -> None:
    page = _open(chromium, pages["plain"], reduced_motion="reduce").page
    page.keyboard.press("Tab")
    skip = page.locator("a.skip")
    assert skip.evaluate("link => link === document.activeElement && link.offsetWidth > 50")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "report"
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        tag, style = page.evaluate(
            "(() => { const one = document.activeElement;"
            " return [one.tagName, getComputedStyle(one).outlineStyle] })()"
        )
        if tag == "BODY":
            break
        assert style == "solid", tag
        seen.add(tag)
    assert seen >= {"A", "SUMMARY", "DIV"}


def test_a_link_to_a_folded_timeline_opens_it(chromium: Browser, pages: dict[str, Path]) -> None:
    page = _open(chromium, pages["plain"]).page
    _unfold(page)
    link = page.locator("#sessions th a").nth(1)
    anchor = link.get_attribute("href") or ""
    page.evaluate("document.querySelectorAll('.timeline').forEach(one => { one.open = false })")
    assert not page.is_visible(f"{anchor} ol")
    link.click()
    assert page.is_visible(f"{anchor} ol")


def test_a_link_to_an_entry_opens_its_lines_of_the_policy(
    chromium: Browser, pages: dict[str, Path]
) -> None:
    page = _open(chromium, pages["plain"]).page
    link = page.locator(".sentence a").first
    source = page.locator(f"{link.get_attribute('href')} pre")
    assert not source.is_visible()
    link.click()
    assert source.is_visible()
    assert source.inner_text().startswith("ask-first:\n  {tools: [send], effect: ask")


@pytest.mark.parametrize("name", TEXTS)
def test_the_harm_of_each_entry_is_in_sight_on_a_phone(
    chromium: Browser, pages: dict[str, Path], name: str
) -> None:
    page = _open(chromium, pages[name], width=390, is_mobile=True).page
    cells = page.locator("#rules tbody tr td:nth-child(2)").all()
    boxes = [cell.bounding_box() for cell in cells]
    assert boxes
    assert all(box is not None and box["x"] + box["width"] <= 370 for box in boxes)


def test_motion_is_left_out_where_the_reader_wants_none(
    chromium: Browser, pages: dict[str, Path]
) -> None:
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    received = {
        wish: _open(chromium, pages["plain"], reduced_motion=wish).page.evaluate(behaviour)
        for wish in ("no-preference", "reduce")
    }
    assert received == {"no-preference": "smooth", "reduce": "auto"}


def test_paper_shows_what_the_screen_folds_away(chromium: Browser, pages: dict[str, Path]) -> None:
    page = _open(chromium, pages["plain"]).page
    last = page.locator(".timeline ol").last
    assert not last.is_visible()
    page.emulate_media(media="print")
    assert last.is_visible()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1100])
def test_axe_finds_nothing(
    chromium: Browser, pages: dict[str, Path], scheme: str, width: int
) -> None:
    axe = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed")
    page = _open(chromium, pages["plain"], width=width, color_scheme=scheme).page
    _unfold(page)
    # Contrast on a gradient cannot be judged; the one behind tables only darkens their edge.
    page.evaluate(
        "document.querySelectorAll('.scroll').forEach(one => { one.style.background = 'none' })"
    )
    page.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    # Where a table is scrolled out of sight, contrast cannot be judged either.
    kinds = ["violations"] if width == 360 else ["violations", "incomplete"]
    wrong = [
        (rule["id"], node["html"][:200])
        for kind in kinds
        for rule in found[kind]
        for node in rule["nodes"]
    ]
    assert wrong == []
    assert len(found["passes"]) > 30
