"""What a test expects of a decision, held against it."""

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
"""Stands for any learned constraint: its id is made from the call's keyed fingerprint."""


def compare_decision(
    decision: Decision,
    expected: ExpectedDecision,
    known_ids: Iterable[str],
    *,
    refused: bool = False,
) -> Iterator[Mismatch]:
    """Everything about a decision that is otherwise than expected.

    Without an effect the call must be admitted, or with `refused` must not. `known` are the ids
    of the policy's entries, for a hint where the test names none of them.
    """
    fits = decision.allowed is not refused
    if expected.effect is not None:
        fits = decision.effect is expected.effect
    if not fits:
        wanted = expected.effect or ("ask, block or halt" if refused else "allow or advise")
        yield Mismatch("effect", str(wanted), decision.effect.value)
    for what, id_, found in (
        ("by", expected.by, decision.violations),
        ("would", expected.would, decision.would),
    ):
        if id_ is not None and not any(matches_id(id_, one.id) for one in found):
            yield Mismatch(what, f"{what} `{id_}`{_hint(id_, known_ids)}", _join_ids(found))
    if expected.says is not None and expected.says not in decision.message:
        found_text = "another message" if decision.message else "no message"
        yield Mismatch("says", f"a message with `{expected.says}`", found_text)
    if expected.timeout is not None:
        timeout = "none" if decision.timeout is None else f"{decision.timeout:g}s"
        if not _has_timeout(decision.timeout, expected.timeout):
            yield Mismatch("timeout", f"timeout {expected.timeout}", f"timeout {timeout}")
    told = decision.structured if expected.structured else {}
    for name, wanted in expected.structured.items():
        if not _is_equal(told.get(name), wanted):
            found_text = f"{name} {format_value(told.get(name))}"
            yield Mismatch("structured", f"{name} {format_value(wanted)}", found_text)
    for fault in decision.errors:
        if fault.id == "internal":
            # A block by a defect of ours must not pass for the block that a test waits for.
            yield Mismatch("internal", "an answer of the policy", f"a defect: {fault.error}")


def matches_id(part: str, id_: str) -> bool:
    """Whether a test that says `part` means the entry `id_`: its id, or a trailing part of it."""
    if part == _LEARNED:
        return id_.startswith(f"{_LEARNED}/")
    return id_ == part or id_.endswith(f"/{part}")


def _has_timeout(found: float | None, wanted: str) -> bool:
    if found is None or wanted == "none":
        return found is None and wanted == "none"
    return math.isclose(found, parse_nanoseconds(wanted) / 1e9)


def _is_equal(found: Any, wanted: Any) -> bool:
    """Whether a value is as the test says; of a map, the keys that the test names."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            key in found and _is_equal(found[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, int | float) and isinstance(found, int | float):
        return math.isclose(found, wanted, abs_tol=1e-9)
    return bool(found == wanted)


def _join_ids(violations: Iterable[Violation]) -> str:
    return ", ".join(violation.id for violation in violations) or "nothing"


def _hint(part: str, known: Iterable[str]) -> str:
    """For an id that no entry of the policy has: which one may have been meant."""
    ids = list(known)
    if part == _LEARNED or any(matches_id(part, id_) for id_ in ids):
        return ""
    ends = [id_[start:] for id_ in ids for start in _segment_starts(id_)]
    hint = did_you_mean(part, ends)
    return f" ({hint})" if hint else ""


def _segment_starts(id_: str) -> Iterator[int]:
    yield 0
    yield from (place + 1 for place, character in enumerate(id_) if character == "/")
