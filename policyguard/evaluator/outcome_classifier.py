"""What came of a call: success or failure, with which signature, by whose fault."""

from __future__ import annotations

from collections.abc import Callable

from policyguard.evaluator.activation import Expression
from policyguard.evaluator.attempt import Attempt
from policyguard.model.amounts import to_nanoseconds
from policyguard.model.errors import ExpressionError
from policyguard.model.event import Completed
from policyguard.model.outcome import Outcome

MIN_ERROR_STATUS = 400
"""HTTP: 4xx and 5xx are errors (RFC 9110 §15)."""


class OutcomeClassifier:
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
        "error_fingerprint",
        "failed_when",
        "harness_keys",
        "has_success_signatures",
        "match_envelope",
        "match_signature",
        "non_advancing_keys",
        "reads_outcome",
        "result_fingerprint",
        "skips_successes",
        "to_duration",
    )

    def __init__(
        self,
        *,
        failed_when: Expression | None,
        match_envelope: Callable[[str], tuple[str, str] | None] | None,
        non_advancing_keys: tuple[str, ...],
        harness_keys: tuple[str, ...],
        match_signature: Callable[[str, bool], tuple[str, str] | None],
        has_success_signatures: bool,
        blame_rules: tuple[tuple[str, Expression, str], ...],
        result_fingerprint: Callable[[str], str],
        error_fingerprint: Callable[[str], str],
        to_duration: Callable[[int], object],
        reads_outcome: bool,
    ) -> None:
        self.failed_when = failed_when
        self.match_envelope = match_envelope
        self.non_advancing_keys = non_advancing_keys
        self.harness_keys = harness_keys
        self.match_signature = match_signature
        self.has_success_signatures = has_success_signatures
        self.blame_rules = blame_rules
        self.result_fingerprint = result_fingerprint
        self.error_fingerprint = error_fingerprint
        self.to_duration = to_duration
        self.reads_outcome = reads_outcome
        # A success of which nothing in the policy says anything.
        self.skips_successes = not (
            reads_outcome or match_envelope or failed_when or has_success_signatures
        )

    def classify(
        self, event: Completed, attempt: Attempt | None, last_fingerprint: str | None
    ) -> Outcome:
        """Judge a result: of an attempt, or (None) of a call that is not known any more.

        `last` is the fingerprint of this call's previous result, if known.
        """
        failed = event.ok is False or event.error is not None
        if event.ok is None and not failed:
            failed = bool(event.exit_code) or (event.status or 0) >= MIN_ERROR_STATUS
        result = self.result_fingerprint(event.text or event.error or "")
        if self.skips_successes and not (failed or event.meta or event.state):
            return Outcome(
                True,
                "success",
                event,
                changed=result != last_fingerprint,
                result_fingerprint=result,
            )
        told = attempt if self.reads_outcome else None
        state, payload = (
            self._split_envelope(event.text) if self.match_envelope is not None else ("", None)
        )
        meta = event.meta
        infra = bool(meta) and any(meta.get(key) for key in self.harness_keys)
        failed = failed or state == "failure" or infra
        state = event.state or state
        changed = result != last_fingerprint
        error = event.error if event.error is not None else event.text
        if not failed and self.failed_when is not None and told is not None:
            self._set_outcome(told, event, ok=True, error="", state=state, changed=changed)
            failed = self._is_true("outcomes/failed_when", self.failed_when, told)
        found = None
        if failed or self.has_success_signatures:
            found = self.match_signature(error if failed else event.text, failed)
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
            self._set_outcome(
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
                if self._is_true(id_, when, told):
                    blame, blamed_by = whose, id_
                    break
        if failed and event.blame:
            blame, blamed_by = event.blame, ""
        outcome = Outcome(
            ok=not failed,
            state=state,
            report=event,
            error=error if failed else "",
            signature=signature,
            blame=blame if failed else "",
            changed=changed,
            payload=payload,
            advancing=not (meta and any(meta.get(key) for key in self.non_advancing_keys)),
            harness_flagged=infra,
            result_fingerprint=result,
            error_fingerprint=self.error_fingerprint(error) if failed else "",
            blamed_by=blamed_by,
        )
        if told is not None:
            self._set_outcome(
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

    def _split_envelope(self, text: str) -> tuple[str, str]:
        """The state that a text begins with, and the rest of it; no state, and the text."""
        found = self.match_envelope(text) if self.match_envelope is not None else None
        return found if found is not None else ("", text)

    def _is_true(self, id_: str, when: Expression, attempt: Attempt) -> bool:
        try:
            answer = when(attempt.activation)
        except ExpressionError as error:
            attempt.add_error(id_, error)
            # An undecided `failed_when` must not make failures of successes (a missing field is
            # the common case), and an undecided blame rule must not put blame on anyone.
            return False
        return answer is True

    def _set_outcome(
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
            "duration": self.to_duration(to_nanoseconds(event.duration)),
            "retry_after": self.to_duration(to_nanoseconds(event.retry_after)),
        }
        if event.score is not None:
            seen["score"] = float(event.score)
        attempt.activation.outcome = seen
