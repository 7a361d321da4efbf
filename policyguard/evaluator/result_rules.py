"""Result rules: what the model and the journal get of a result.

All rules that match apply, whatever their order in the policy. First redaction, of the matches of
all patterns at once; then the shortest `truncate`; a `withhold` leaves nothing. What cannot be
decided counts as a match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from policyguard.evaluator.activation import Expression
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.messages import MessageTemplate
from policyguard.model.decision import EvalError
from policyguard.model.effect import ResultEffect
from policyguard.model.errors import ExpressionError
from policyguard.model.outcome import Outcome, ResultViolation
from policyguard.model.redaction import redact_value


class TextPatterns(Protocol):
    """Named patterns, any of which may occur in a text."""

    def occurs_in(self, text: str) -> bool:
        """Whether one of them occurs."""
        ...

    def redact(self, text: str) -> str:
        """Return the text with `[name]` for each match; the same object if there is none.

        `ExpressionError` if some would remain.
        """
        ...

    def redact_across(self, texts: Sequence[str]) -> list[str]:
        """Return texts without the matches that go on from one to the next."""
        ...


SelectPatterns = Callable[[tuple[str, ...]], TextPatterns]
"""Returns the patterns whose names match one of the globs."""


class CompiledResultRule(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A result rule; its selectors on names are resolved into the plans that hold it.

    `finds` are globs of pattern names; empty: any result. A rule that `reads_time` is not evaluated
    for a recorded result without a time.
    """

    id: str
    finds: tuple[str, ...]
    when: Expression | None
    unless: Expression | None
    effect: ResultEffect
    keep: int
    message: MessageTemplate | None
    observe: bool
    reads_time: bool

    def matches(self, attempt: Attempt) -> tuple[bool, str]:
        """Return whether `when` and `unless` let the rule apply, and the error of one that failed.

        An error in `when` is a match, one in `unless` no exemption.
        """
        error = ""
        for expression, expected, name in (
            (self.when, True, "when"),
            (self.unless, False, "unless"),
        ):
            if expression is None:
                continue
            try:
                answer = expression(attempt.activation)
            except ExpressionError as caught:
                error = error or str(caught)
                continue
            if answer is (not expected):
                return False, ""
            if answer is not expected:
                error = error or f"`{name}` is not a bool"
        return True, error

    def render(self, attempt: Attempt) -> str:
        """Return the rule's own message; empty if it has none."""
        if self.message is None:
            return ""
        known = not attempt.lacks_arguments
        call = attempt.template_call if known else {"tool": attempt.shown_tool}
        values = {"call": call, "tags": attempt.activation.tags, "rule": self.id}
        return self.message.render(values)


class ResultRules(msgspec.Struct, frozen=True, eq=False):
    """All result rules of a policy, and what they share.

    `all_rules` apply to results of calls about which too little is known to find their plan. At
    most `max_chars` characters of a result are searched.
    """

    all_rules: tuple[CompiledResultRule, ...]
    select: SelectPatterns
    max_chars: int


class ResultEdits(msgspec.Struct, frozen=True, eq=False):
    """What the rules that fired do to a result's texts, in this order: redact, cut, withhold."""

    redactor: TextPatterns | None = None
    keep: int | None = None
    is_withheld: bool = False

    @property
    def leaves_some(self) -> bool:
        """Whether they edit a result and leave a part of it."""
        return not self.is_withheld and (self.redactor is not None or self.keep is not None)

    def edit(self, text: str) -> str:
        """Return what is left of a text."""
        if self.is_withheld or not text:
            return ""
        return self.cut(text if self.redactor is None else self.redactor.redact(text))

    def cut(self, text: str) -> str:
        """Return a text without what `truncate` cuts off, and say how much that is."""
        keep = self.keep
        if keep is None or len(text) <= keep:
            return text
        notice = f"[… {len(text) - keep:,} of {len(text):,} characters cut]"
        return f"{text[:keep]}\n{notice}" if keep else notice


class ResultEvaluation(msgspec.Struct, frozen=True, eq=False):
    """What the result rules of a call say of its result.

    `halted_by` is the first rule that stops the session; empty for none.
    """

    violations: tuple[ResultViolation, ...]
    would: tuple[ResultViolation, ...]
    edits: ResultEdits
    halted_by: str = ""


def evaluate_result_rules(
    shared: ResultRules,
    rules: Sequence[CompiledResultRule],
    attempt: Attempt,
    texts: Sequence[str],
    doubt: str,
    *,
    shown_chars: int,
    observe: bool,
    may_halt: bool,
) -> ResultEvaluation | None:
    """Ask each rule about a result; return None if none fires.

    `texts` are all that the host may hand on, or `doubt` says why they are not; the longest that
    the model sees has `shown_chars` characters. With `observe` nothing fires, and all of it is in
    `would`. A result that must not halt the session is withheld.
    """
    violations: list[ResultViolation] = []
    would: list[ResultViolation] = []
    globs: dict[str, None] = {}
    keeps: list[int] = []
    halted_by = ""
    is_withheld = False
    for rule in rules:
        if rule.reads_time and attempt.at is None:
            continue
        is_match, error = _covers(shared, rule, attempt, texts, doubt)
        if not is_match:
            continue
        effect = rule.effect
        if effect == "truncate" and shown_chars <= rule.keep and not doubt:
            continue
        if effect == "halt" and (error or not may_halt):
            effect = "withhold"  # a rule on calls, too, blocks where it fails
        violation = ResultViolation(rule.id, effect, _text(rule, effect, attempt))
        if rule.observe or observe:
            would.append(violation)
            continue
        violations.append(violation)
        if effect == "redact":
            globs |= dict.fromkeys(rule.finds)
        elif effect == "truncate":
            keeps.append(rule.keep)
        elif effect == "withhold":
            is_withheld = True
        elif effect == "halt":
            halted_by = halted_by or rule.id
    if not (violations or would):
        return None
    redactor = shared.select(tuple(globs)) if globs else None
    edits = ResultEdits(redactor, min(keeps, default=None), is_withheld)
    return ResultEvaluation(tuple(violations), tuple(would), edits, halted_by)


def withhold_all(evaluation: ResultEvaluation, error: str) -> ResultEvaluation:
    """Return the evaluation of a result that cannot be edited: all of it is withheld."""
    edits = ResultEdits(is_withheld=True)
    violations = tuple(
        replace(violation, effect="withhold", text=_withheld_text(f"it cannot be edited: {error}"))
        if violation.effect in ("redact", "truncate")
        else violation
        for violation in evaluation.violations
    )
    return replace(evaluation, edits=edits, violations=violations)


def edit_outcome(outcome: Outcome, evaluation: ResultEvaluation, text: str) -> Outcome:
    """Return an outcome with what the rules leave of its texts; `text` is that of the result."""
    edits = evaluation.edits
    report = outcome.report
    error = None if report.error is None else edits.edit(report.error)
    meta = report.meta
    if meta and edits.is_withheld:
        meta = {}
    elif meta and edits.redactor is not None:
        meta = _redact_meta(meta, edits.redactor.redact)
    edited = text != report.text or error != report.error or meta != report.meta
    return replace(
        outcome,
        report=replace(
            report,
            text=text,
            error=error,
            meta=meta,
            fired=tuple(violation.id for violation in evaluation.violations),
            edited=edited,
            halted_by=evaluation.halted_by,
        ),
        error=text if outcome.error and report.error is None else edits.edit(outcome.error),
        payload=outcome.payload and edits.edit(outcome.payload),
    )


def edit_errors(errors: Sequence[EvalError], edits: ResultEdits) -> tuple[EvalError, ...]:
    """Return errors of expressions without what they may quote of the result."""
    if edits.is_withheld:
        return tuple(EvalError(error.id, _WITHHELD_ERROR) for error in errors)
    redactor = edits.redactor
    if redactor is None:
        return tuple(errors)
    return tuple(EvalError(error.id, redactor.redact(error.error)) for error in errors)


def _redact_meta(meta: dict[str, Any], redact: Callable[[str], str]) -> dict[str, Any]:
    try:
        redacted: dict[str, Any] = redact_value(meta, redact)
    except (RecursionError, ValueError):
        return {}
    return redacted


def _covers(
    shared: ResultRules,
    rule: CompiledResultRule,
    attempt: Attempt,
    texts: Sequence[str],
    doubt: str,
) -> tuple[bool, str]:
    """Return whether a rule matches a result, and what kept it from being decided."""
    is_found, is_too_long = True, False
    if rule.finds:
        is_found = any(map(shared.select(rule.finds).occurs_in, texts))
        is_too_long = any(len(text) > shared.max_chars for text in texts)
        if not (is_found or is_too_long or doubt):
            return False, ""
    is_match, error = rule.matches(attempt)
    if not error and is_too_long and (rule.effect == "redact" or not is_found):
        error = f"the result is longer than `bounds.result_chars` ({shared.max_chars:,})"
    if doubt and (rule.effect in ("redact", "truncate") or not is_found):
        error = error or doubt
    if is_match and error:
        error = attempt.add_error(rule.id, error)
    return is_match, error


def _text(rule: CompiledResultRule, effect: ResultEffect, attempt: Attempt) -> str:
    """Return what a rule that fires says to the model."""
    message = rule.render(attempt)
    match effect:
        case "advise":
            return message or f"rule `{rule.id.partition('/')[2]}` applies to this result"
        case "withhold":
            return _withheld_text(message or f"rule `{rule.id.partition('/')[2]}`")
        case "halt":
            reason = message or f"the run was halted by {rule.id}"
            return f"{reason.rstrip('.')}. Do not call any tool again this turn."
        case _:
            return message


def _withheld_text(reason: str) -> str:
    return f"The call has run; its result is withheld: {reason}"


_WITHHELD_ERROR = "an expression failed on this result, which is withheld"
