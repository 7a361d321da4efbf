"""What is answered to a call, and why."""

from __future__ import annotations

from typing import Any

import msgspec

from policyguard.model.effect import Effect


class Violation(msgspec.Struct, frozen=True):
    """One entry of the policy that has something against a call.

    `id` names the entry (`limits/default/repeat`, `budgets/spend`, `rules/no-push`), `reason` is
    a word for programs (`repeat`, `budget`, `rule` …), `text` and `instead` are for the model.
    `used` and `limit` are in the entry's own unit; `retry_after` is seconds; `confidence` is how
    sure a learned constraint still is, from 0 to 1.
    """

    id: str
    effect: Effect
    reason: str
    text: str
    instead: str = ""
    used: float | None = None
    limit: float | None = None
    retry_after: float | None = None
    confidence: float | None = None


class Fault(msgspec.Struct, frozen=True):
    """An expression of the policy that failed on this call: which, and how."""

    id: str
    error: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `check`: may the call run, and if not, what to tell the model.

    `violations` holds every entry that fired, strongest effect first; `errors` every expression
    that failed; `would` what entries in observe mode would have done. `fingerprint` is the same
    for the same call (keyed: it means nothing to another guard).
    """

    id: str
    session: str
    tool: str
    effect: Effect
    allowed: bool
    violations: tuple[Violation, ...] = ()
    fingerprint: str = ""
    errors: tuple[Fault, ...] = ()
    would: tuple[Violation, ...] = ()

    @property
    def message(self) -> str:
        """One text for the model: what was refused, why, what is left, what to do instead."""
        if not self.violations:
            return ""
        head = _HEADS[self.effect].format(tool=self.tool)
        return "\n".join([head, *(_line(violation) for violation in self.violations)])

    @property
    def structured(self) -> dict[str, Any]:
        """The same for programs; keys that do not apply are None."""
        first = self.violations[0] if self.violations else None
        remaining = None
        if first is not None and first.used is not None and first.limit is not None:
            remaining = max(0.0, first.limit - first.used)
        return {
            "status": _STATUS[self.effect],
            "reason": first.reason if first else None,
            "action": (first.instead or None) if first else None,
            "rule": first.id if first else None,
            "limit": first.limit if first else None,
            "used": first.used if first else None,
            "remaining": remaining,
            "retry_after": first.retry_after if first else None,
            "constraint": _constraint(first),
        }


_HEADS = {
    Effect.ALLOW: "`{tool}` is allowed.",
    Effect.ADVISE: "A note on `{tool}`:",
    Effect.ASK: "`{tool}` was not run: it needs an approval first.",
    Effect.BLOCK: "`{tool}` was not run.",
    Effect.HALT: "`{tool}` was not run, and no further call will be in this turn.",
}
_STATUS = {
    Effect.ALLOW: "allowed",
    Effect.ADVISE: "advised",
    Effect.ASK: "needs_approval",
    Effect.BLOCK: "blocked",
    Effect.HALT: "halted",
}


def _constraint(violation: Violation | None) -> str | None:
    if violation is None or not violation.id.startswith("constraints/"):
        return None
    return violation.id.removeprefix("constraints/")


def _line(violation: Violation) -> str:
    text = f"- {violation.text} [{violation.id}]"
    if violation.retry_after:
        text += f" Try again in {violation.retry_after:g} s."
    if violation.instead:
        text += f" Instead: {violation.instead}"
    return text
