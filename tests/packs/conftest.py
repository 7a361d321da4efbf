"""What the tests of packs share."""

from __future__ import annotations

import pytest

from policyguard.compiler import alive


@pytest.fixture(autouse=True)
def _step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packs learn, which the language's second step brings to life."""
    monkeypatch.setattr(alive, "STEP", max(alive.STEP, 2))
