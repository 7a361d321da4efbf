"""Settings and checks for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline: machines are shared, so examples may be slow.
settings.register_profile("anywhere", deadline=None)
settings.load_profile("anywhere")
# CI uses the same examples each time, so that a failure is due to the change. Elsewhere hypothesis
# looks for new ones.
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")

# Tests neither fill nor use the user's cache of compiled policies.
os.environ["POLICYGUARD_CACHE"] = "off"


@pytest.fixture(scope="session", autouse=True)
def check_for_leftover_files() -> Iterator[None]:
    """Fail if the tests left files in the project, where they might be committed."""
    project = Path.cwd()
    before = {path.name for path in project.iterdir()}
    yield
    leftovers = {path.name for path in project.iterdir()} - before
    assert not {name for name in leftovers if not name.startswith(".")}, leftovers
