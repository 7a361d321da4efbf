"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.examples import examples

# No deadline: machines are shared, and an example may take long. In CI the properties are tried on
# the same examples each time, so that a failure is due to the change; elsewhere on new ones.
settings.register_profile(
    "policyguard",
    max_examples=examples(100),
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("policyguard")

# The tests must neither read nor fill the user's cache.
os.environ["POLICYGUARD_CACHE"] = "off"


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Check that the tests write into folders of their own only."""
    here = Path.cwd()
    before = {one.name for one in here.iterdir()}
    yield
    left = {one.name for one in here.iterdir()} - before
    assert not {name for name in left if not name.startswith(".")}, left
