"""The result of a call: recorded as the test says, and compared with what it expects."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from policyguard.engines.yaml_tree import Path
from policyguard.guard import Session
from policyguard.model.decision import Decision
from policyguard.model.outcome import Recorded
from policyguard.report.policy_tests.results import Mismatch
from policyguard.testing.clock import parse_seconds
from policyguard.testing.formatting import format_value
from policyguard.testing.suite import CallResult, Step


def record_result(session: Session, decision: Decision, result: CallResult) -> Recorded:
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


def compare_result(recorded: Recorded, step: Step) -> Iterator[tuple[Path, Mismatch]]:
    """Yield every difference between a result and what is expected, with its path in the step."""
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
