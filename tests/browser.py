"""Chromium, for tests of pages. Where it is elsewhere than on the path, `CHROMIUM` names it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

pytest.importorskip("playwright", reason="playwright, which steers a browser, is not installed")
from playwright.sync_api import Browser, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser without a window, for which the name `evil.example` is this machine's."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("no Chromium here: install one, or name it in CHROMIUM")
    # Chromium's own sandbox does not work for root.
    flags = [*_FLAGS, "--no-sandbox"] if os.geteuid() == 0 else [*_FLAGS]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()
