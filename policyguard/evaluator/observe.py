"""What came of a call: success or failure, with which signature, by whose fault."""

from __future__ import annotations

from collections.abc import Callable

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.view import Expression
from policyguard.model.errors import ExpressionError
from policyguard.model.event import Completed
from policyguard.model.outcome import Outcome
from policyguard.model.quantity import nanoseconds

FIRST_ERROR_STATUS = 400
"""HTTP: 4xx and 5xx are errors (RFC 9110 §15)."""


class Observer:
    """The policy's `outcomes`, `signatures` and `blame`, compiled.

    `signature` gives the first signature that fits a text, out of those for failures (True) or
    for successes (False, where any is `success_signed`): its id and blame. `envelope` gives the
    first state that a result's text has and the text without its mark, None for a text that has
    none (or a policy without states). `non_advancing` and `harness` are the keys in a result's
    metadata that flag it. `blame_rules` are first match. `same_result` and `same_error` are the
    fingerprints of texts; `span` turns nanoseconds into what expressions see as a duration. With
    `told` some expression reads the outcome, and is shown it.
    """

    __slots__ = (
        "blame_rules",
        "envelope",
        "failed_when",
        "harness",
        "non_advancing",
        "plain",
        "same_error",
        "same_result",
        "signature",
        "span",
        "success_signed",
        "told",
    )

    def __init__(
        self,
        *,
        failed_when: Expression | None,
        envelope: Callable[[str], tuple[str, str] | None] | None,
        non_advancing: tuple[str, ...],
        harness: tuple[str, ...],
        signature: Callable[[str, bool], tuple[str, str] | None],
        success_signed: bool,
        blame_rules: tuple[tuple[str, Expression, str], ...],
        same_result: Callable[[str], str],
        same_error: Callable[[str], str],
        span: Callable[[int], object],
        told: bool,
    ) -> None:
        self.failed_when = failed_when
        self.envelope = envelope
        self.non_advancing = non_advancing
        self.harness = harness
        self.signature = signature
        self.success_signed = success_signed
        self.blame_rules = blame_rules
        self.same_result = same_result
        self.same_error = same_error
        self.span = span
        self.told = told
        # A success of which nothing in the policy says anything.
        self.plain = not (told or envelope or failed_when or success_signed)

    def observe(self, event: Completed, attempt: Attempt | None, last: str | None) -> Outcome:
        """Judge a result: of an attempt, or (None) of a call that is not known any more.

        `last` is the fingerprint of this call's previous result, if known.
        """
        failed = event.ok is False or event.error is not None
        if event.ok is None and not failed:
            failed = bool(event.exit_code) or (event.status or 0) >= FIRST_ERROR_STATUS
        result = self.same_result(event.text or event.error or "")
        if self.plain and not (failed or event.meta or event.state):
            return _succeeded(event, result, result != last)
        told = attempt if self.told else None
        state, payload = self._enveloped(event.text) if self.envelope is not None else ("", None)
        meta = event.meta
        infra = bool(meta) and any(meta.get(key) for key in self.harness)
        failed = failed or state == "failure" or infra
        state = event.state or state
        changed = result != last
        error = event.error if event.error is not None else event.text
        if not failed and self.failed_when is not None and told is not None:
            self._tell(told, event, ok=True, error="", state=state, changed=changed)
            failed = self._holds("outcomes/failed_when", self.failed_when, told)
        found = None
        if failed or self.success_signed:
            found = self.signature(error if failed else event.text, failed)
        signature, blame = found if found is not None else ("", "unknown" if failed else "")
        blamed_by = ""
        if failed:
            state = "failure"
            if infra or (event.timeout_by and blame == "unknown"):
                blame = "harness"
            if payload == "" and event.error:
                payload = event.error
        elif state != "pending":
            state = "success"
        if failed and self.blame_rules and told is not None:
            self._tell(
                told,
                event,
                ok=False,
                error=error,
                state=state,
                signature=signature,
                blame=blame,
                changed=changed,
            )
            for id_, when, whose in self.blame_rules:
                if self._holds(id_, when, told):
                    blame, blamed_by = whose, id_
                    break
        if failed and event.blame:
            blame, blamed_by = event.blame, ""
        outcome = Outcome(
            not failed,
            state,
            event.text,
            error if failed else "",
            signature,
            blame if failed else "",
            event.exit_code,
            event.status,
            event.retry_after,
            event.duration,
            event.tokens,
            event.cost,
            event.score,
            meta,
            changed,
            payload,
            not (meta and any(meta.get(key) for key in self.non_advancing)),
            infra,
            result,
            self.same_error(error) if failed else "",
            blamed_by,
        )
        if told is not None:
            self._tell(
                told,
                event,
                ok=outcome.ok,
                error=outcome.error,
                state=state,
                signature=signature,
                blame=outcome.blame,
                changed=changed,
            )
        return outcome

    def _enveloped(self, text: str) -> tuple[str, str]:
        """The state that a text begins with, and the rest of it; no state, and the text."""
        found = self.envelope(text) if self.envelope is not None else None
        return found if found is not None else ("", text)

    def _holds(self, id_: str, when: Expression, attempt: Attempt) -> bool:
        try:
            answer = when(attempt.view)
        except ExpressionError as error:
            attempt.fault(id_, error)
            # An undecided `failed_when` must not make failures of successes (a missing field is
            # the common case), and an undecided blame rule must not put blame on anyone.
            return False
        return answer is True

    def _tell(
        self,
        attempt: Attempt,
        event: Completed,
        *,
        ok: bool,
        error: str,
        state: str,
        changed: bool,
        signature: str = "",
        blame: str = "",
    ) -> None:
        """Show expressions the `outcome` (POLICY_LANGUAGE §5)."""
        seen: dict[str, object] = {
            "ok": ok,
            "state": state or ("success" if ok else "failure"),
            "text": event.text,
            "error": error,
            "signature": signature,
            "blame": blame,
            "chars": len(event.text),
            "exit_code": event.exit_code or 0,
            "status": event.status or 0,
            "tokens": event.tokens or 0,
            "cost": float(event.cost or 0),
            "meta": event.meta,
            "changed": changed,
            "duration": self.span(nanoseconds(event.duration)),
            "retry_after": self.span(nanoseconds(event.retry_after)),
        }
        if event.score is not None:
            seen["score"] = float(event.score)
        attempt.view.outcome = seen


def _succeeded(event: Completed, result: str, changed: bool) -> Outcome:
    """A success as it was reported."""
    return Outcome(
        True,
        "success",
        event.text,
        "",
        "",
        "",
        event.exit_code,
        event.status,
        event.retry_after,
        event.duration,
        event.tokens,
        event.cost,
        event.score,
        event.meta,
        changed,
        None,
        True,
        False,
        result,
    )
