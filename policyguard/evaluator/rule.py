"""Compiled rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import msgspec

from policyguard.evaluator.activation import Doubt, Expression, Prefilter, Selects
from policyguard.evaluator.approvals import ApprovalRequirement
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.cases import CaseResult, CompiledCase, decide
from policyguard.evaluator.messages import MessageTemplate, quote_call
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.errors import ExpressionError


class CompiledRule(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A rule; its selectors on names are resolved into the plans that hold it.

    `selects` are its selectors on what a call says; None: it has none. `doubts` say where these
    are not certain.
    `approval` is None where any one approval will do. A rule that `reads_time` is not evaluated for
    a recorded call without a time. If it has `cases`, the first that matches decides in place of
    the rule's own effect.
    """

    id: str
    selects: Selects | None
    when: Expression | None
    unless: Expression | None
    effect: Effect
    on_error: Effect
    message: MessageTemplate | None
    instead: MessageTemplate | None
    observe: bool
    reads_time: bool
    doubts: tuple[Doubt, ...] = ()
    approval: ApprovalRequirement | None = None
    cases: tuple[CompiledCase, ...] = ()

    @property
    def is_ban(self) -> bool:
        """Whether it refuses every call of the tools that it is about."""
        if not (self.selects is self.when is self.unless is None):
            return False
        if self.cases:
            first = self.cases[0]
            return first.is_unconditional and first.effect >= Effect.BLOCK and not self.observe
        return self.effect >= Effect.BLOCK and not self.observe

    def evaluate(self, attempt: Attempt) -> tuple[Violation, ...]:
        """Return the rule's violation, if it matches; with `cases`, of each that may decide.

        An error in `when` is a match, one in `unless` no exemption; the effect is `on_error`.
        """
        if self.selects is not None and not self.selects(attempt.activation):
            return ()
        error = ""
        if self.when is not None:
            try:
                answer = self.when(attempt.activation)
            except ExpressionError as caught:
                error = str(caught)
            else:
                if answer is False:
                    return ()
                if answer is not True:
                    error = "`when` is not a bool"
        if self.unless is not None:
            try:
                answer = self.unless(attempt.activation)
            except ExpressionError as caught:
                error = error or str(caught)
            else:
                if answer is True:
                    return ()
                if answer is not False:
                    error = error or "`unless` is not a bool"
        if self.cases:
            return self._evaluate_cases(attempt, error)
        effect = self.effect
        if error:
            error = attempt.add_error(self.id, error)
            effect = self.on_error
            if effect is Effect.ALLOW:
                return ()
        text, instead = self._render_text(attempt, effect), self._render_instead(attempt)
        doubt = _describe_doubts(attempt, self.doubts)
        remarks = _describe_remarks(error, doubt)
        quotes = bool(remarks) or quote_call(self.message, self.instead)
        return (
            Violation(self.id, effect, "rule", text + remarks, instead, doubt=doubt, quotes=quotes),
        )

    def find_case(self, attempt: Attempt) -> CompiledCase | None:
        """Return the case that decides on a call; None if none matches, or the rule does not.

        An error that allows the call matches nothing.
        """
        activation = attempt.activation
        if self.selects is not None and not self.selects(activation):
            return None
        for condition, exempts in ((self.when, False), (self.unless, True)):
            try:
                if condition is not None and condition(activation) is exempts:
                    return None
            except ExpressionError as error:
                attempt.add_error(self.id, error)
                if self.on_error is Effect.ALLOW:
                    return None
        found = decide(self.cases, attempt)
        if not found or (found[0].error and found[0].effect is Effect.ALLOW):
            return None
        return found[0].case

    def _evaluate_cases(self, attempt: Attempt, error: str) -> tuple[Violation, ...]:
        """Return the violations of the cases that may decide.

        An error in the rule's own conditions is a match here too: the cases say of what.
        """
        if error:
            attempt.add_error(self.id, error)
            if self.on_error is Effect.ALLOW:
                return ()
        return tuple(
            [
                self._case_violation(found, attempt)
                for found in decide(self.cases, attempt)
                if found.effect is not Effect.ALLOW
            ]
        )

    def _case_violation(self, found: CaseResult, attempt: Attempt) -> Violation:
        case = found.case
        values = {**self._template_values(attempt), "rule": case.id}
        message, instead = case.message or self.message, case.instead or self.instead
        text = _describe(case.id, found.effect) if message is None else message.render(values)
        doubt = _describe_doubts(attempt, (*self.doubts, *case.doubts))
        remarks = _describe_remarks(found.error, doubt)
        shown = instead.render(values) if instead is not None else ""
        quotes = bool(remarks) or quote_call(message, instead)
        return Violation(
            case.id, found.effect, "rule", text + remarks, shown, doubt=doubt, quotes=quotes
        )

    def _render_text(self, attempt: Attempt, effect: Effect) -> str:
        if self.message is None:
            return _describe(self.id, effect)
        return self.message.render(self._template_values(attempt))

    def _render_instead(self, attempt: Attempt) -> str:
        return (
            self.instead.render(self._template_values(attempt)) if self.instead is not None else ""
        )

    def _template_values(self, attempt: Attempt) -> dict[str, object]:
        return {"call": attempt.template_call, "tags": attempt.activation.tags, "rule": self.id}


def _describe(id_: str, effect: Effect) -> str:
    """Return the text of a rule, or a case, that has no message."""
    verb = "forbids" if effect > Effect.ASK else "applies to"
    return f"rule `{id_.partition('/')[2]}` {verb} this call"


def _describe_doubts(attempt: Attempt, doubts: tuple[Doubt, ...]) -> str:
    """Return what of the call is not known; empty if the rule is certainly about it."""
    found = filter(None, (describe(attempt.activation) for describe in doubts))
    return "; ".join(dict.fromkeys(found))


def _describe_remarks(error: str, doubt: str) -> str:
    """Return what a message would be misleading without."""
    remarks = [f"the rule failed: {error}"] if error else []
    remarks += [doubt] if doubt else []
    return f" ({'; '.join(remarks)})" if remarks else ""


class RuleSet(tuple[CompiledRule, ...]):
    """The rules of one plan. `compile_prefilter` compiles the `when` of all into one function."""

    compile_prefilter: Callable[[], Prefilter]

    @cached_property
    def _prefilter(self) -> Prefilter:
        return self.compile_prefilter()

    def possible_matches(self, attempt: Attempt) -> Sequence[CompiledRule]:
        """Return the rules that may match a call: all whose `when` is not plainly false."""
        indices = self._prefilter(attempt.activation)
        return [self[index] for index in indices] if indices else ()
