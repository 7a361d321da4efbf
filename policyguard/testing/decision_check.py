"""The comparison of a decision with what a test expects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from policyguard.model.decision import Decision, Violation
from policyguard.model.diagnostic import did_you_mean
from policyguard.report.policy_tests.results import Mismatch
from policyguard.testing.clock import parse_nanoseconds
from policyguard.testing.formatting import format_value
from policyguard.testing.suite import ExpectedDecision

_LEARNED = "constraints"
"""Matches any learned constraint, whose id depends on a keyed fingerprint."""


def compare_decision(
    decision: Decision,
    expected: ExpectedDecision,
    known_ids: Iterable[str],
    *,
    refused: bool = False,
) -> Iterator[Mismatch]:
    """Yield every difference between a decision and what is expected of it.

    Without an expected effect the call must be admitted, or refused if `refused`. `known_ids` are
    the policy's entries, for a hint if the test names none of them.
    """
    matches = decision.allowed is not refused
    if expected.effect is not None:
        matches = decision.effect is expected.effect
    if not matches:
        effect = expected.effect or ("ask, block or halt" if refused else "allow or advise")
        yield Mismatch("effect", str(effect), decision.effect.value)
    for key, id_, violations in (
        ("by", expected.by, decision.violations),
        ("would", expected.would, decision.would),
    ):
        if id_ is not None and not any(matches_id(id_, found.id) for found in violations):
            hint = _hint(id_, known_ids)
            yield Mismatch(key, f"{key} `{id_}`{hint}", _join_ids(violations))
    if expected.says is not None and expected.says not in decision.message:
        found = "another message" if decision.message else "no message"
        yield Mismatch("says", f"a message with `{expected.says}`", found)
    if expected.timeout is not None:
        timeout = "none" if decision.timeout is None else f"{decision.timeout:g}s"
        if not _has_timeout(decision.timeout, expected.timeout):
            yield Mismatch("timeout", f"timeout {expected.timeout}", f"timeout {timeout}")
    structured = decision.structured if expected.structured else {}
    for name, value in expected.structured.items():
        if not _is_equal(structured.get(name), value):
            found = f"{name} {format_value(structured.get(name))}"
            yield Mismatch("structured", f"{name} {format_value(value)}", found)
    for error in decision.errors:
        if error.id == "internal":  # its block must not pass for the one that the test expects
            found = f"internal error: {error.error}"
            yield Mismatch("internal", "a decision of the policy", found)


def matches_id(part: str, id_: str) -> bool:
    """Return whether `part` is the entry id `id_` or its last part."""
    if part == _LEARNED:
        return id_.startswith(f"{_LEARNED}/")
    return id_ == part or id_.endswith(f"/{part}")


def _has_timeout(found: float | None, expected: str) -> bool:
    if found is None or expected == "none":
        return found is None and expected == "none"
    return math.isclose(found, parse_nanoseconds(expected) / 1e9)


def _is_equal(found: Any, expected: Any) -> bool:
    """Return whether a value is as expected; of a map, only the expected keys count."""
    if isinstance(expected, Mapping):
        return isinstance(found, Mapping) and all(
            key in found and _is_equal(found[key], value) for key, value in expected.items()
        )
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return math.isclose(found, expected, abs_tol=1e-9)
    return bool(found == expected)


def _join_ids(violations: Iterable[Violation]) -> str:
    return ", ".join(violation.id for violation in violations) or "nothing"


def _hint(part: str, known_ids: Iterable[str]) -> str:
    """Suggest an id if no entry of the policy has this one."""
    ids = list(known_ids)
    if part == _LEARNED or any(matches_id(part, id_) for id_ in ids):
        return ""
    parts = [id_.split("/", count)[-1] for id_ in ids for count in range(id_.count("/") + 1)]
    hint = did_you_mean(part, parts)
    return f" ({hint})" if hint else ""
