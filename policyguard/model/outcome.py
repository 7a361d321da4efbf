"""The outcome of a call."""

from __future__ import annotations

from typing import Any

import msgspec

from policyguard.model.decision import EvalError
from policyguard.model.effect import ResultEffect
from policyguard.model.event import Completed


class Outcome(msgspec.Struct, frozen=True):
    """The result of one call, evaluated: did it fail, with which signature, by whose fault.

    `state` is `success`, `failure`, `pending` or `cancelled`; a pending call, and one that was
    stopped from outside (cancelled), has neither failed (`ok`) nor succeeded. `report` is the
    result as it was reported; its numbers and texts are attributes here too. `error` is empty for a
    success. `blame` is `agent`, `harness` or `unknown`, empty for a
    success, and `blamed_by` the entry of the policy's `blame` that decided it, if one did.
    `changed` is False where the same call had the same result before. `payload` is the text without
    the mark of its state; None where the policy has no `outcomes.envelope`. `advancing` is False
    where the tool flags its result as bringing nothing new, `harness_flagged` True where the host
    flags it as the harness's fault. The fingerprints are keyed; that of the error masks numbers,
    paths, hashes and times, `like_result` what `classify.likeness` says (see `Completed`).
    """

    ok: bool
    state: str
    report: Completed
    changed: bool = True
    result_fingerprint: str = ""
    like_result: str = ""
    error: str = ""
    signature: str = ""
    blame: str = ""
    payload: str | None = None
    advancing: bool = True
    harness_flagged: bool = False
    error_fingerprint: str = ""
    blamed_by: str = ""

    def __repr__(self) -> str:
        details = [detail for detail in (self.signature, self.blame, self.error[:80]) if detail]
        return f"<Outcome {self.state}{': ' if details else ''}{', '.join(details)}>"

    @property
    def text(self) -> str:
        """The result's text."""
        return self.report.text

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process."""
        return self.report.exit_code

    @property
    def status(self) -> int | None:
        """The HTTP status."""
        return self.report.status

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before the next try."""
        return self.report.retry_after

    @property
    def duration(self) -> float | None:
        """Seconds that the call took."""
        return self.report.duration

    @property
    def tokens(self) -> int | None:
        """Tokens that the call used."""
        return self.report.tokens

    @property
    def cost(self) -> float | None:
        """What the call cost, in the currency of the budgets."""
        return self.report.cost

    @property
    def score(self) -> float | None:
        """A measure of progress."""
        return self.report.score

    @property
    def meta(self) -> dict[str, Any]:
        """The result's metadata."""
        return self.report.meta


_STATE_PREFIXES = {
    "success": "SUCCESS",
    "failure": "FAILED",
    "pending": "PENDING",
    "cancelled": "CANCELLED",
}


class ResultViolation(msgspec.Struct, frozen=True):
    """A result rule that fired: its id, its effect, and what it says to the model."""

    id: str
    effect: ResultEffect
    text: str = ""


class Recorded(msgspec.Struct, frozen=True):
    """The answer to `record`: the outcome, text to add to the result, what was learned.

    `errors` are expressions of the policy that failed on this result, what kept it from being
    written down, and whether it came late. `counted` is False for the result of a call that is
    unknown: it was refused, has been reported before, was forgotten as one of too many unreported
    ones, or its session is over. `violations` are the result rules that fired; `would` those that
    would have, in observe mode. The outcome holds the result as they leave it: what was redacted or
    withheld is in no field.
    """

    outcome: Outcome
    advice: str = ""
    learned: tuple[str, ...] = ()
    errors: tuple[EvalError, ...] = ()
    counted: bool = True
    value: Any = None
    violations: tuple[ResultViolation, ...] = ()
    would: tuple[ResultViolation, ...] = ()

    def __repr__(self) -> str:
        parts = [self.outcome.state]
        if self.outcome.blame:
            parts.append(f"blame {self.outcome.blame}")
        if self.learned:
            parts.append(f"learned {', '.join(self.learned)}")
        parts += [f"{violation.effect} ({violation.id})" for violation in self.violations]
        if not self.counted:
            parts.append("not counted")
        return f"<Recorded {', '.join(parts)}>"

    @property
    def text(self) -> str:
        """The result for the model: unambiguous where the policy has an envelope for results.

        Then it begins with its state: `SUCCESS:`, `FAILED:`, `PENDING:` or `CANCELLED:`.
        """
        outcome = self.outcome
        text = outcome.error or outcome.text
        if outcome.payload is not None:
            mark = f"{_STATE_PREFIXES[outcome.state]}:"
            text = f"{mark} {outcome.payload}" if outcome.payload else mark
        if self.advice:
            return f"{text}\n\n{self.advice}" if text else self.advice
        return text

    @property
    def result(self) -> Any:
        """The result to hand on, of the type that the tool returned where that is possible.

        Text is `text`. Structures (JSON, MCP results, pydantic models) come as result rules leave
        them; MCP results carry the advice as another text block, other structures do not. A
        structure of which nothing may be shown, that was cut, or that cannot be redacted part by
        part, is text.
        """
        value = self.value
        return self.text if value is None or isinstance(value, str) else value

    @property
    def halted_by(self) -> str:
        """The result rule that stopped the session; empty for none."""
        return self.outcome.report.halted_by

    @property
    def structured(self) -> dict[str, Any]:
        """The same for programs: state, payload, and what is known beside."""
        outcome = self.outcome
        return {
            "state": outcome.state,
            "payload": outcome.text if outcome.payload is None else outcome.payload,
            "metadata": {
                "reason": outcome.error or None,
                "signature": outcome.signature or None,
                "blame": outcome.blame or None,
                "retry_after": outcome.retry_after,
                "advice": self.advice or None,
            },
        }
