"""The comparison of decisions and results with what a test expects."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from policyguard.engines.yaml_tree import Path
from policyguard.guard import Session
from policyguard.model.decision import Decision, Violation
from policyguard.model.diagnostic import did_you_mean
from policyguard.model.outcome import Recorded, ResultViolation
from policyguard.report.policy_tests.results import Mismatch
from policyguard.testing.suite import (
    ExpectedDecision,
    ScriptedResult,
    Step,
    parse_nanoseconds,
    parse_seconds,
)

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
    if not (isinstance(expected, Step) and expected.then is not None):  # else of the result
        yield from _compare_ids(expected, decision, known_ids)
    waived = [waiver.violation for waiver in decision.waived]
    if expected.waived is not None and not any(matches_id(expected.waived, id_) for id_ in waived):
        hint = _hint(expected.waived, known_ids)
        wanted = f"waived `{expected.waived}`{hint}"
        yield Mismatch("waived", wanted, ", ".join(waived) or "nothing")
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


def _compare_ids(
    expected: ExpectedDecision, found: Decision | Recorded, known_ids: Iterable[str]
) -> Iterator[Mismatch]:
    """Yield what does not hold of the entries that fired, or would have."""
    for key, id_, violations in (
        ("by", expected.by, found.violations),
        ("would", expected.would, found.would),
    ):
        if id_ is not None and not any(matches_id(id_, one.id) for one in violations):
            hint = _hint(id_, known_ids)
            yield Mismatch(key, f"{key} `{id_}`{hint}", _join_ids(violations))


def matches_id(part: str, id_: str) -> bool:
    """Return whether `part` is the entry id `id_`, its last part, or the rule of a case."""
    if part == _LEARNED:
        return id_.startswith(f"{_LEARNED}/")
    section, _, name = id_.partition("/")
    if section == "rules" and "/" in name and matches_id(part, f"rules/{name.partition('/')[0]}"):
        return True
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


def _join_ids(violations: Iterable[Violation | ResultViolation]) -> str:
    return ", ".join(violation.id for violation in violations) or "nothing"


def _hint(part: str, known_ids: Iterable[str]) -> str:
    """Suggest an id if no entry of the policy has this one."""
    ids = list(known_ids)
    if part == _LEARNED or any(matches_id(part, id_) for id_ in ids):
        return ""
    parts = [id_.split("/", count)[-1] for id_ in ids for count in range(id_.count("/") + 1)]
    hint = did_you_mean(part, parts)
    return f" ({hint})" if hint else ""


def record_result(session: Session, decision: Decision, result: ScriptedResult) -> Recorded:
    """Record the result of a call."""
    error = result.error
    if error is None and result.ok is False:
        error = result.text
    return session.record(
        decision,
        result=result.text if result.mcp is None else result.mcp,
        error=error,
        exit_code=result.exit_code,
        status=result.status,
        retry_after=parse_seconds(result.retry_after),
        blame=result.blame,
        duration=parse_seconds(result.duration),
        tokens=result.tokens,
        cost=result.cost,
        score=result.score,
        meta=result.meta,
    )


def compare_result(
    recorded: Recorded, step: Step, known_ids: Iterable[str]
) -> Iterator[tuple[Path, Mismatch]]:
    """Yield every difference between a result and what is expected, with its path in the step."""
    if step.then is not None:
        effects = [violation.effect for violation in recorded.violations]
        if step.then not in effects and (effects or step.then != "allow"):
            yield ("then",), _mismatch("then", step.then, ", ".join(effects) or "allow")
        for mismatch in _compare_ids(step, recorded, known_ids):
            yield (mismatch.aspect,), mismatch
    for name, expected in step.outcome.items():
        found = getattr(recorded.outcome, name)
        if found != expected:
            yield ("outcome", name), _mismatch(name, format_value(expected), format_value(found))
    if step.text is not None:
        text = msgspec.structs.replace(recorded, advice="").text
        if text != step.text:
            yield ("text",), _mismatch("text", format_value(step.text), format_value(text))
    if step.advice is not None:
        advice = recorded.advice
        if step.advice not in advice or (advice and not step.advice):
            wanted = f"with `{step.advice}`" if step.advice else "none"
            yield (
                ("advice",),
                _mismatch("advice", wanted, format_value(advice) if advice else "none"),
            )


def _mismatch(what: str, wanted: str, found: str) -> Mismatch:
    return Mismatch(what, f"{what} {wanted}", f"{what} {found}")


def format_call(call: Mapping[str, Mapping[str, Any] | str]) -> str:
    """Format a call as in a test: `read_file {"path": "a"}`."""
    ((tool, args),) = call.items()
    return f"{tool} {json.dumps(args, ensure_ascii=False)}"


def format_value(value: Any) -> str:
    """Format a value as in a test; text in backticks."""
    return f"`{value}`" if isinstance(value, str) else json.dumps(value)
