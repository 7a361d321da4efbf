"""What hosts report of a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard


def load(folder: Path, text: str) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: p\n{text}")
    return Guard.load(file)


@pytest.mark.parametrize(("status", "ok"), [(200, True), (204, True), (399, True), (400, False)])
def test_a_status_from_400_on_is_a_failure(tmp_path: Path, status: int, ok: bool) -> None:
    session = load(tmp_path, "limits: {default: {failures: {max: 9}}}\n").session("s")
    recorded = session.record(session.check("get", {}), result="x", status=status)
    assert recorded.outcome.ok is ok
