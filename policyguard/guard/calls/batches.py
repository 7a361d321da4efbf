"""The calls of one message, checked together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from policyguard.evaluator.batches import BATCH_REFUSED
from policyguard.guard import validate
from policyguard.model.decision import Decision

if TYPE_CHECKING:
    from policyguard.guard.session import Session

Call = tuple[str, Mapping[str, Any]]
"""A tool and its arguments."""


def check_batch(session: Session, calls: Iterable[Call], batch: str) -> list[Decision]:
    """Check the calls of a batch in order; see `Session.check_batch`."""
    listed = [_read_call(number, call) for number, call in enumerate(calls)]
    decisions = [session.check(tool, args, batch=batch) for tool, args in listed]
    if all(decision.allowed or _is_refused_for_others(decision) for decision in decisions):
        # What had refused the others is allowed by now.
        decisions = [
            decision if decision.allowed else session.check(tool, args, batch=batch)
            for (tool, args), decision in zip(listed, decisions, strict=True)
        ]
    if all(decisions) or not session.guard._evaluator.refuses_batches:
        return decisions
    for decision in decisions:
        if decision.allowed:
            session.release(decision)
    return [
        session.check(tool, args, batch=batch) if decision.allowed else decision
        for (tool, args), decision in zip(listed, decisions, strict=True)
    ]


def _read_call(number: int, call: object) -> Call:
    """Return a tool and its arguments: before the first call is admitted, all are known to be."""
    if not isinstance(call, (tuple, list)) or len(call) != 2:
        raise TypeError(f"`calls[{number}]` is not a tool and its arguments: ('read', {{…}})")
    return validate.text(f"calls[{number}][0]", call[0]), call[1]


def _is_refused_for_others(decision: Decision) -> bool:
    return [violation.id for violation in decision.violations] == [BATCH_REFUSED]
