"""core's signatures on recorded runs: they match failures and few successes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from policyguard.compiler import compile_policy
from policyguard.compiler.build.outcome_matchers import SignatureMatcher
from policyguard.model.event import Completed
from policyguard.traces import Reader, expand

TRACES = Path(
    os.environ.get("POLICYGUARD_TRACES", Path(__file__).parents[2] / ".." / "shared" / "traces")
)
pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason=f"no recorded traces at {TRACES} (POLICYGUARD_TRACES names them)"
)


def _results(*, failed: bool) -> Iterator[str]:
    """Yield the texts of results with an explicit outcome."""
    reader = Reader()
    for file in expand([TRACES]):
        for item in reader.read(file):
            if (
                isinstance(item, Completed)
                and item.provenance == "explicit"
                and item.ok is not failed
            ):
                text = item.text if item.error is None else item.error
                if text.strip():
                    yield text


def _share(texts: list[str]) -> float:
    policy = compile_policy("core").policy
    signatures = SignatureMatcher(policy.signatures)
    return sum(signatures.match(text, failed=True) is not None for text in texts) / len(texts)


def test_signatures_match_failures() -> None:
    failures = list(_results(failed=True))
    assert len(failures) >= 70
    assert _share(failures) >= 0.95


def test_signatures_match_few_successes() -> None:
    """The matches are errors whose exit code a pipe hid (docs/signatures.md)."""
    successes = list(_results(failed=False))
    assert len(successes) >= 1400
    assert _share(successes) <= 0.05
