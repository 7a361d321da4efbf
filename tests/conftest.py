"""Settings and checks for all tests."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.examples import THOROUGH, examples

# No deadline: machines are shared, and an example may take long. In CI the properties are tried on
# the same examples each time, so that a failure is due to the change; elsewhere on new ones.
settings.register_profile(
    "policyguard",
    max_examples=examples(100),
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("policyguard")

# Hundreds of processes that the tests start would compile our modules anew, each time.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled policies for this run, and out of the user's cache; `make test-all` has none.

    xdist's workers inherit the folder, as do all processes that tests start.
    """
    if hasattr(config, "workerinput"):
        return
    if THOROUGH:
        os.environ["POLICYGUARD_CACHE"] = "off"
        return
    folder = tempfile.mkdtemp(prefix="policyguard-cache-")
    os.environ["POLICYGUARD_CACHE"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_finish() -> None:
    """Spare the garbage collector the thousands of tests, which live as long as the run."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_state() -> Iterator[None]:
    """Keep stores and journals out of the user's state, in a folder short enough for sockets."""
    with (
        tempfile.TemporaryDirectory(prefix="state-") as folder,
        pytest.MonkeyPatch.context() as set_,
    ):
        set_.setenv("XDG_STATE_HOME", folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def check_for_leftover_files() -> Iterator[None]:
    """Fail if the tests left files in the project, where they might be committed."""
    project = Path.cwd()
    before = {path.name for path in project.iterdir()}
    yield
    leftovers = {path.name for path in project.iterdir()} - before
    assert not {name for name in leftovers if not name.startswith(".")}, leftovers
