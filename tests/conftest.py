"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# How long one example takes is the machine's business, and machines are shared.
settings.register_profile("anywhere", deadline=None)
settings.load_profile("anywhere")
# In CI the properties are tried on the same examples each time: a change is judged by what it
# changes. Everywhere else they go on looking for new ones.
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")

# What the tests compile is none of the user's cache, and comes out of none.
os.environ["POLICYGUARD_CACHE"] = "off"


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """A test writes into folders of its own: what it left in the project would be committed."""
    here = Path.cwd()
    before = {one.name for one in here.iterdir()}
    yield
    left = {one.name for one in here.iterdir()} - before
    assert not {name for name in left if not name.startswith(".")}, left
