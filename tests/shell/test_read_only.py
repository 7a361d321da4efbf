"""Which command lines change nothing."""

from __future__ import annotations

import pytest

from policyguard.shell.read_only import is_read_only
from tests.shell.shell_cases import read_case, shell_reader

CASES = read_case("read_only")


@pytest.mark.parametrize("text", CASES["read_only"])
def test_read_only(text: str) -> None:
    assert is_read_only(text, shell_reader())


@pytest.mark.parametrize("text", CASES["changes"])
def test_changes(text: str) -> None:
    assert not is_read_only(text, shell_reader())
