"""What came of a call."""

from __future__ import annotations

from typing import Any

import msgspec

from policyguard.model.decision import EvalError


class Outcome(msgspec.Struct, frozen=True):
    """The result of one call, judged: did it fail, with which signature, and whose fault was it.

    `state` is `success`, `failure` or `pending`: what is pending has not failed (`ok`), and has
    not succeeded either. `payload` is the text without the mark that told the state; None where
    the policy has no `outcomes.envelope`. `advancing` is False where the tool flags its result as
    bringing nothing new, `infra` True where the host flags it as the harness's fault.
    `blame` is `agent`, `harness` or `unknown`, empty for a success; `blamed_by` the entry of the
    policy's `blame` that put it there, if one did. `result` and `failure` are
    fingerprints: of the result's text, and of the error with its accidents (numbers, paths,
    hashes, times) masked, so that "the same result" and "the same error" can be told.
    """

    ok: bool
    state: str
    text: str = ""
    error: str = ""
    signature: str = ""
    blame: str = ""
    exit_code: int | None = None
    status: int | None = None
    retry_after: float | None = None
    duration: float | None = None
    tokens: int | None = None
    cost: float | None = None
    score: float | None = None
    meta: dict[str, Any] = {}
    changed: bool = True
    payload: str | None = None
    advancing: bool = True
    harness_flagged: bool = False
    result_fingerprint: str = ""
    error_fingerprint: str = ""
    blamed_by: str = ""


_STATE_PREFIXES = {"success": "SUCCESS", "failure": "FAILED", "pending": "PENDING"}


class Recorded(msgspec.Struct, frozen=True):
    """The answer to `record`: the outcome, text to add to the result, what was learned.

    `errors` are expressions of the policy that failed on this result, and what kept it from being
    written down. `counted` is False for the result of a call that was not in flight: it was
    refused, or has been reported before, or its session is over.
    """

    outcome: Outcome
    advice: str = ""
    learned: tuple[str, ...] = ()
    errors: tuple[EvalError, ...] = ()
    counted: bool = True

    def __repr__(self) -> str:
        parts = [self.outcome.state]
        if self.outcome.blame:
            parts.append(f"blame {self.outcome.blame}")
        if self.learned:
            parts.append(f"learned {', '.join(self.learned)}")
        if not self.counted:
            parts.append("not counted")
        return f"<Recorded {', '.join(parts)}>"

    @property
    def text(self) -> str:
        """The result for the model: unambiguous where the policy has an envelope for results.

        Then it begins with its state: `SUCCESS:`, `FAILED:` or `PENDING:`.
        """
        outcome = self.outcome
        text = outcome.error or outcome.text
        if outcome.payload is not None:
            mark = f"{_STATE_PREFIXES[outcome.state]}:"
            text = f"{mark} {outcome.payload}" if outcome.payload else mark
        return f"{text}\n\n{self.advice}" if self.advice else text

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
