"""The tests of each pack pass and cover every entry of the pack."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard.testing.runner import run_files

POLICIES = Path(__file__).parents[2] / "policies"
FILES = [POLICIES / "core" / "tests.yaml", *sorted(POLICIES.glob("packs/*/tests.yaml"))]


def test_each_pack_has_tests() -> None:
    packs = {file.parent for file in POLICIES.glob("*/**/policy.yaml")}
    assert packs == {file.parent for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.parent.name))
def test_pack_tests_pass_and_cover_the_pack(file: Path) -> None:
    if ".sql(" in (file.parent / "policy.yaml").read_text("utf-8"):
        pytest.importorskip("sqlglot")
    report = run_files([file], coverage=True)
    assert report.failed == 0
    assert report.coverage is not None
    (found,) = report.coverage
    assert [entry.id for entry in found.entries if not entry.hits] == []
