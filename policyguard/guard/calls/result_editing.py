"""Applies result rules: to the outcome, to what the host hands on, and to what is written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from policyguard.engines.fingerprint import result_text
from policyguard.evaluator.attempt import UNRECORDED_ARGS, Attempt, CallResult
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.result_rules import (
    CompiledResultRule,
    ResultEvaluation,
    edit_errors,
    edit_outcome,
    evaluate_result_rules,
    withhold_all,
)
from policyguard.guard.tools.edited_values import (
    UnreadableResultError,
    count_structured,
    edit_value,
    list_texts,
)
from policyguard.guard.tools.results import append_advice
from policyguard.model.decision import EvalError
from policyguard.model.errors import ExpressionError
from policyguard.model.event import CallEnded, Completed
from policyguard.model.outcome import Outcome, Recorded

if TYPE_CHECKING:
    from policyguard.evaluator.session_state import SessionState
    from policyguard.guard.tools.results import ToolResult


class EditedResult(msgspec.Struct, frozen=True, eq=False):
    """A result as the rules leave it; `value` as in `Recorded`. None of them: none fired."""

    outcome: Outcome
    value: Any
    evaluation: ResultEvaluation | None

    @property
    def advice(self) -> str:
        """What the rules say to the model."""
        if self.evaluation is None:
            return ""
        texts = [violation.text for violation in self.evaluation.violations if violation.text]
        advice = "\n".join(dict.fromkeys(texts))
        redactor = self.evaluation.edits.redactor
        return advice if redactor is None else redactor.redact(advice)  # it may quote the call


def evaluate_parts(
    evaluator: Evaluator,
    attempt: Attempt,
    event: Completed,
    parsed: ToolResult | None,
    *,
    observe: bool,
) -> tuple[CallResult, EditedResult | None]:
    """Evaluate a result as `Evaluator.evaluate_result` does, and apply the rules of its plan.

    `parsed` is the result as the host reported it, where that is no text. The second is None if no
    rule fires.
    """
    if evaluator.reads_data:
        attempt.activation.data_text = _find_data_text(parsed)
    result = evaluator.evaluate_result(attempt, event)
    rules = attempt.bound_plan.plan.result_rules
    if not rules:
        return result, None
    edited = _edit(
        evaluator, rules, attempt, result.outcome, parsed, observe=observe, may_halt=True
    )
    if edited.evaluation is None:
        return result, None
    result.outcome, result.report = edited.outcome, edited.outcome.report
    return result, edited


def edit_uncounted(
    evaluator: Evaluator,
    session: SessionState,
    event: Completed,
    parsed: ToolResult | None,
    *,
    observe: bool,
) -> EditedResult:
    """Classify the result of a call that is not in flight, and apply the result rules.

    Nothing tells which of them cover the call, so all do.
    """
    shared = evaluator.result_rules
    if shared is None:
        outcome = evaluator.outcome_classifier.classify(event, None, None)
        return EditedResult(outcome, None if parsed is None else parsed.value, None)
    attempt = Attempt("", UNRECORDED_ARGS, event.at, session)
    attempt.mark_completed(event.at, event.wall)
    if evaluator.reads_data:
        attempt.activation.data_text = _find_data_text(parsed)
    outcome = evaluator.outcome_classifier.classify(event, attempt, None)
    return _edit(evaluator, shared.all_rules, attempt, outcome, parsed, observe=observe)


def edit_ended(
    evaluator: Evaluator, attempt: Attempt | None, event: CallEnded, *, observe: bool
) -> CallEnded:
    """Return the end of a call that had timed out, as the result rules leave it."""
    if evaluator.result_rules is None:
        return event
    if attempt is None:  # it counts nowhere, so nothing of it is kept
        return replace(event, text="", error=event.error and "")
    rules = attempt.bound_plan.plan.result_rules
    if not rules:
        return event
    report = Completed(
        event.session, event.at, event.call, event.ok, text=event.text, error=event.error
    )
    attempt.mark_completed(event.at, event.wall)
    outcome = evaluator.outcome_classifier.classify(report, attempt, None)
    edited = _edit(evaluator, rules, attempt, outcome, None, observe=observe).outcome.report
    return replace(event, text=edited.text, error=edited.error)


def _find_data_text(parsed: ToolResult | None) -> str:
    """Return the JSON of a result that its text does not show; empty if there is none."""
    if parsed is None or parsed.structured is None:
        return ""
    return result_text(parsed.structured)


def build_recorded(
    outcome: Outcome,
    edited: EditedResult | None,
    parsed: ToolResult | None,
    advice: str,
    learned: Sequence[str],
    errors: tuple[EvalError, ...],
    *,
    counted: bool = True,
) -> Recorded:
    """Return the answer to `record`; `advice` is that of the decisions on the call's batch."""
    value = None if parsed is None else parsed.value
    evaluation = None
    if edited is not None:
        value, evaluation = edited.value, edited.evaluation
        advice = "\n".join(filter(None, (edited.advice, advice)))
    if advice:
        value = append_advice(value, advice)
    violations, would = (
        ((), ()) if evaluation is None else (evaluation.violations, evaluation.would)
    )
    return Recorded(outcome, advice, tuple(learned), errors, counted, value, violations, would)


def _edit(
    evaluator: Evaluator,
    rules: tuple[CompiledResultRule, ...],
    attempt: Attempt,
    outcome: Outcome,
    parsed: ToolResult | None,
    *,
    observe: bool,
    may_halt: bool = False,
) -> EditedResult:
    shared = evaluator.result_rules
    assert shared is not None  # noqa: S101 - there are rules
    report = outcome.report
    value = None if parsed is None else parsed.value
    texts = [report.text, report.error or ""]
    shown_chars = max(map(len, texts))
    if parsed is not None:
        shown_chars = max(shown_chars, count_structured(parsed))
    doubt = ""
    try:
        if value is not None:
            texts += list_texts(value)
        if report.meta:
            texts += list_texts(report.meta)
    except UnreadableResultError as error:
        doubt = str(error)
    evaluation = evaluate_result_rules(
        shared,
        rules,
        attempt,
        texts,
        doubt,
        shown_chars=shown_chars,
        observe=observe,
        may_halt=may_halt,
    )
    if evaluation is None:
        return EditedResult(outcome, value, None)
    if doubt and evaluation.edits.leaves_some:
        evaluation = withhold_all(evaluation, doubt)
    try:
        edited = _apply(evaluation, outcome, value)
    except ExpressionError as error:
        evaluation = withhold_all(evaluation, str(error))
        edited = _apply(evaluation, outcome, value)
    attempt.errors = edit_errors(attempt.errors, evaluation.edits)
    return edited


def _apply(evaluation: ResultEvaluation, outcome: Outcome, value: Any) -> EditedResult:
    edits, text = evaluation.edits, outcome.report.text
    if value is not None:
        value, text = edit_value(value, text, edits)
    else:
        text = edits.edit(text)
    return EditedResult(edit_outcome(outcome, evaluation, text), value, evaluation)
