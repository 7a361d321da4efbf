"""Classification of results: success or failure, with which signature, by whose fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from policyguard.evaluator.activation import Expression, OutcomeVariables
from policyguard.evaluator.attempt import CONTENT_MARK, ECHO_MARK, NOTHING_MARK, Attempt
from policyguard.model.amounts import to_nanoseconds
from policyguard.model.errors import ExpressionError
from policyguard.model.event import Completed
from policyguard.model.outcome import Outcome

_ECHO = "#"
"""A result that holds no other words than its call, without these."""
MIN_ERROR_STATUS = 400
"""HTTP: 4xx and 5xx are errors (RFC 9110 §15)."""


class OutcomeClassifier(msgspec.Struct, eq=False, kw_only=True):
    """The policy's `outcomes`, `signatures` and `blame`, compiled.

    `match_signature` returns id and blame of the first signature that matches a text, of those for
    failures (True) or successes (False). `match_envelope` returns the state that a text's mark says
    and the text without it; None for a text without a mark. `harness_keys` and `non_advancing_keys`
    are metadata keys that flag a result. `mask_echo` returns a result that found nothing, without
    the words of its call, `mask_call_words` any short one; one that found nothing has at most
    `nothing_chars`, and any of `nothing_words`, whatever its case. `unwrap` returns an error
    without a framework's words. Blame rules are first match. `reads_outcome`: some
    expression reads `outcome`; `reads_data`: one reads `outcome.data`.
    """

    failed_when: Expression | None
    match_envelope: Callable[[str], tuple[str, str] | None] | None
    non_advancing_keys: tuple[str, ...]
    harness_keys: tuple[str, ...]
    match_signature: Callable[[str, bool], tuple[str, str] | None]
    has_success_signatures: bool
    blame_rules: tuple[tuple[str, Expression, str], ...]
    result_fingerprint: Callable[[str], str]
    find_like_result: Callable[[str, bool], str] | None
    mask_echo: Callable[[str, dict[str, Any]], str] | None
    mask_call_words: Callable[[str, dict[str, Any]], str]
    nothing_words: tuple[str, ...]
    nothing_chars: int
    error_fingerprint: Callable[[str], str]
    unwrap: Callable[[str], str] | None
    to_duration: Callable[[int], object]
    reads_outcome: bool
    reads_data: bool
    skips_successes: bool = False

    def __post_init__(self) -> None:
        # No expression, envelope or signature looks at a plain success.
        self.skips_successes = not (
            self.reads_outcome
            or self.match_envelope
            or self.failed_when
            or self.has_success_signatures
        )

    def classify(
        self, event: Completed, attempt: Attempt | None, last_fingerprint: str | None
    ) -> Outcome:
        """Classify a result: of an attempt, or (None) of a call that is not in flight.

        `last_fingerprint` is that of the same call's previous result, if known.
        """
        if event.state == "cancelled":
            return self._classify_cancelled(event, attempt)
        if event.ok is not None or event.error is not None:
            failed = event.ok is False or event.error is not None
        elif event.exit_code:
            failed = True
        else:
            failed = event.status is not None and event.status >= MIN_ERROR_STATUS
        text = event.text or event.error or ""
        result = self.result_fingerprint(text)
        changed = result != last_fingerprint
        like_result = ""
        if attempt is not None and attempt.bound_plan is not None:  # a call that is known
            echoed = ""
            if not failed and len(text) <= self.nothing_chars:
                folded = text.casefold()
                for word in self.nothing_words:
                    if word in folded:
                        echoed = self._mask_echo(text, attempt)
                        break
            if attempt.recurs or echoed:
                like_result = self._find_like_result(echoed or text, attempt, result, failed)
                if echoed:
                    like_result = f"{NOTHING_MARK}{like_result}"
            elif attempt.session.has_repeated and not failed:
                like_result = self._find_echo(text, attempt)
        if self.skips_successes and not (failed or event.meta or event.state):
            return Outcome(True, "success", event, changed, result, like_result)
        reader = attempt if self.reads_outcome else None
        state, payload = "", None
        if self.match_envelope is not None:
            state, payload = self.match_envelope(event.text) or ("", event.text)
        meta = event.meta
        harness_flagged = bool(meta) and any(meta.get(key) for key in self.harness_keys)
        failed = failed or state == "failure" or harness_flagged
        state = event.state or state
        error = event.error if event.error is not None else event.text
        if not failed and self.failed_when is not None and reader is not None:
            unsettled = Outcome(True, state or "success", event, changed)
            self._set_outcome(reader, unsettled)
            failed = self._is_true("outcomes/failed_when", self.failed_when, reader)
        cause = self.unwrap(error) if failed and self.unwrap is not None else error
        match = None
        if failed or self.has_success_signatures:
            match = self.match_signature(cause if failed else event.text, failed)
        signature, blame = match if match is not None else ("", "unknown" if failed else "")
        blamed_by = ""
        if failed:
            state = "failure"
            if harness_flagged or (event.timeout_by and blame == "unknown"):
                blame = "harness"
            if payload == "" and event.error:
                payload = event.error
        else:
            error = ""
            if state != "pending":
                state = "success"
        if failed and self.blame_rules and reader is not None:
            unsettled = Outcome(
                False, state, event, changed, error=error, signature=signature, blame=blame
            )
            self._set_outcome(reader, unsettled)
            for id_, when, rule_blame in self.blame_rules:
                if self._is_true(id_, when, reader):
                    blame, blamed_by = rule_blame, id_
                    break
        if failed and event.blame:
            blame, blamed_by = event.blame, ""
        if not failed:
            blame = ""
        outcome = Outcome(
            # Positional: msgspec is slow at keywords.
            not failed,
            state,
            event,
            changed,
            result,
            like_result,
            error,
            signature,
            blame,
            payload,
            not (meta and any(meta.get(key) for key in self.non_advancing_keys)),
            harness_flagged,
            self.error_fingerprint(cause) if failed else "",
            blamed_by,
        )
        if reader is not None:
            self._set_outcome(reader, outcome)
        return outcome

    def _mask_echo(self, text: str, attempt: Attempt) -> str:
        """Return a result that found nothing, without the words of its call; else nothing.

        Only limits on the results of different calls read it, and only if these change no state.
        """
        bound_plan = attempt.bound_plan
        if self.mask_echo is None or not bound_plan.recent_results:
            return ""
        echoed = self.mask_echo(text, attempt.args)
        return "" if echoed and bound_plan.plan.is_state_changing(attempt) else echoed

    def _find_echo(self, text: str, attempt: Attempt) -> str:
        """Return `ECHO_MARK`, with the fingerprint of what a result holds beside its call's words.

        Return nothing for a result that holds none of these, nor for any other word in that of a
        call that only looks: it is news.
        """
        masked = self.mask_call_words(text, attempt.args)
        if masked == _ECHO:
            return ECHO_MARK
        if not masked or not attempt.bound_plan.plan.is_state_changing(attempt):
            return ""
        find = self.find_like_result
        found = self.result_fingerprint(masked) if find is None else find(masked, True)
        return f"{ECHO_MARK}{found}"

    def _find_like_result(self, text: str, attempt: Attempt, result: str, failed: bool) -> str:
        """Return the fingerprint of a result with its variable parts masked.

        It is marked if the result says nothing against what was done before it: see `WindowEntry`.
        """
        like_result = ""
        if self.find_like_result is not None:
            in_order = self._is_in_order(text, attempt, failed)
            like_result = self.find_like_result(text, in_order)
        bound_plan = attempt.bound_plan
        if failed or not bound_plan.recent_results:
            return like_result
        is_content = not text.strip() or (
            bound_plan.plan.is_state_changing(attempt) and self.match_signature(text, True) is None
        )
        return f"{CONTENT_MARK}{like_result or result}" if is_content else like_result

    def _is_in_order(self, text: str, attempt: Attempt, failed: bool) -> bool:
        """Whether the order of a result's lines may be what changed: a list that is being sorted.

        That takes a change of state since the call was made before. A failure sorts nothing.
        """
        recent_results = attempt.bound_plan.recent_results
        if failed or not any(results.has_changed_since(attempt) for results in recent_results):
            return False
        return self.match_signature(text, True) is None

    def _classify_cancelled(self, event: Completed, attempt: Attempt | None) -> Outcome:
        """Return the outcome of a call that was stopped from outside: nothing can be read in it."""
        payload = None if self.match_envelope is None else event.error or ""
        outcome = Outcome(True, "cancelled", event, error=event.error or "", payload=payload)
        if self.reads_outcome and attempt is not None:
            self._set_outcome(attempt, outcome)
        return outcome

    def _is_true(self, id_: str, when: Expression, attempt: Attempt) -> bool:
        """Whether a condition holds. An error is no: it must neither fail a success nor blame."""
        try:
            answer = when(attempt.activation)
        except ExpressionError as error:
            attempt.add_error(id_, error)
            return False
        return answer is True

    def _set_outcome(self, attempt: Attempt, outcome: Outcome) -> None:
        """Set `outcome` for expressions (POLICY_LANGUAGE §5)."""
        variables: dict[str, Any] = {
            "ok": outcome.ok,
            "state": outcome.state,
            "text": outcome.text,
            "error": outcome.error,
            "signature": outcome.signature,
            "blame": outcome.blame,
            "chars": len(outcome.text),
            "exit_code": outcome.exit_code or 0,
            "status": outcome.status or 0,
            "tokens": outcome.tokens or 0,
            "cost": float(outcome.cost or 0),
            "meta": outcome.meta,
            "changed": outcome.changed,
            "duration": self.to_duration(to_nanoseconds(outcome.duration)),
            "retry_after": self.to_duration(to_nanoseconds(outcome.retry_after)),
        }
        if outcome.score is not None:
            variables["score"] = float(outcome.score)
        activation = attempt.activation
        if self.reads_data:
            activation.data_text = (
                activation.data_text or outcome.text or outcome.report.error or ""
            )
            variables = OutcomeVariables(variables, activation)
        activation.outcome = variables
