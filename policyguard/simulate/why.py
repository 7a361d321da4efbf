"""Why a call was decided as it was: the entries of a policy asked again, from the journal.

The session's state is rebuilt up to the call, so limits and budgets count what they counted then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.expressions import reads_field, rule_reads
from policyguard.compiler.build.messages import build_redactor
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.evaluation import Evaluation, GuardMode
from policyguard.evaluator.evaluator_state import EvaluatorState, TransitionHooks
from policyguard.evaluator.fold import fold, rebuild
from policyguard.evaluator.messages import quote_value
from policyguard.evaluator.plan import BoundPlan
from policyguard.evaluator.rule import CompiledRule
from policyguard.evaluator.transitions import find_plan, restore_attempt
from policyguard.model.amounts import SCALE, format_duration, format_number
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.errors import ExpressionError
from policyguard.model.event import (
    Admitted,
    Approved,
    Completed,
    Denied,
    Event,
    Refused,
    Released,
    SessionStarted,
)
from policyguard.model.policy import Rule
from policyguard.report.why import CallExplanation, EntryAnswer

_READ = re.compile(r"\b(?:call|session|tags|params)(?:\.[a-zA-Z_]\w*)+")
"""The fields that an expression reads by name."""
_MAX_SAW = 8
_ALONE = GuardMode(observe=False, approver_presence="absent")


def explain_call(
    compiled: CompiledPolicy, events: Iterable[Event], call: str
) -> CallExplanation | None:
    """Explain a call of a session's events, by policyguard's id or the host's; None if unknown.

    Of several calls with the host's id it is the latest.
    """
    recorded = [*events]
    number, event = _find_call(recorded, call)
    if event is None:
        return None
    evaluator = compiled.evaluator
    state = EvaluatorState(TransitionHooks(), evaluator.bounds.grants, evaluator.new_mark_states())
    for earlier in recorded[:number]:
        rebuild(evaluator, state, earlier)
    if event.session not in state.sessions:  # the journal's beginning is gone
        fold(evaluator, state, SessionStarted(event.session, event.at))
    asked = _Asked(compiled, state, event)
    admitted = isinstance(event, Admitted)
    return CallExplanation(
        session=event.session,
        call=event.call,
        host_call=event.host_call,
        tool=event.shown_tool,
        args=None if event.args is None else asked.redact(_to_json(event.args)),
        at=event.at if event.wall is None else event.wall,
        effect=event.effect,
        recorded=event.violations,
        entries=tuple(asked.entries()),
        answers=(
            *(_earlier_answers(recorded[:number], event) if admitted else ()),
            *_answers(recorded[number + 1 :], event),
        ),
        result=_result(recorded[number + 1 :], event) if admitted else "",
        notes=tuple(asked.notes()),
    )


def _find_call(events: list[Event], call: str) -> tuple[int, Admitted | Refused | None]:
    for number in range(len(events) - 1, -1, -1):
        event = events[number]
        if isinstance(event, (Admitted, Refused)) and call in (event.call, event.host_call):
            return number, event
    return 0, None


class _Asked:
    """The entries that are about a call, asked about it."""

    def __init__(
        self, compiled: CompiledPolicy, state: EvaluatorState, event: Admitted | Refused
    ) -> None:
        self._compiled, self._event, self._state = compiled, event, state
        self.redact = build_redactor(compiled.policy)
        evaluator = compiled.evaluator
        session = state.sessions[event.session]
        plan = find_plan(evaluator, session, event)
        self._attempt: Attempt = restore_attempt(session, event, plan)
        self._bound: BoundPlan = self._attempt.bound_plan
        try:
            evaluation = evaluator.evaluate(state, self._attempt, self._bound, (), _ALONE)
        except ValueError:  # something reads the arguments, which the journal does not have
            evaluation = Evaluation(Effect.ALLOW, tuple(self._ask_without_arguments()), (), ())
        self._fired = {one.id: one for one in (*evaluation.would, *evaluation.violations)}
        self._observed = {one.id for one in evaluation.would}
        self._waived = {one.violation: one.exception for one in evaluation.waived}

    def _ask_without_arguments(self) -> Iterator[Violation]:
        """Yield what is known to have fired: by the record, with the texts of limits."""
        session = self._state.sessions[self._event.session]
        recorded = {*self._event.violations}
        for limit, tracker in self._bound.limits:
            if limit.id in recorded:
                found = limit.evaluate(tracker, self._attempt, session.state_changes, 0)
                if found is not None:
                    recorded.discard(limit.id)
                    yield found
        for id_ in self._event.violations:
            if id_ in recorded and not id_.startswith("constraints/"):
                yield Violation(id_, Effect(self._event.effect), "", "it fired")

    def entries(self) -> Iterator[EntryAnswer]:
        """Yield the answers of rules, limits, budgets and learned constraints."""
        known = set()
        for rule in self._bound.plan.rules:
            known |= {rule.id, *(case.id for case in rule.cases)}
            yield from self._ask_rule(rule)
        for limit, _ in self._bound.limits:
            if limit.id not in known:
                known.add(limit.id)
                yield self._answer(limit.id, "not reached", self._change_limit(limit.id))
        for budget in self._bound.plan.budgets:
            known.add(budget.id)
            key = "max" if budget.kind in ("sum", "distinct") else budget.kind
            yield self._answer(budget.id, self._describe_budget(budget), f"a larger `{key}`")
        for id_ in (*self._fired, *self._event.violations):
            if id_ not in known:
                known.add(id_)
                yield self._answer_other(id_)

    def notes(self) -> Iterator[str]:
        """Yield what to know about the answers."""
        if self._event.args is None:
            yield (
                "the journal did not keep the arguments: entries that read them may answer "
                "otherwise here; `journal: {args: keep}` keeps them"
            )
        marks = ", ".join(f"`{name}`" for name in self._find_shared_marks())
        if marks:
            yield f"not set here are {marks}: no journal has the marks of agents and projects"
        now = tuple(id_ for id_ in self._fired if id_ not in self._observed)
        learned = [id_ for id_ in self._event.violations if id_.startswith("constraints/")]
        if {*now, *learned} != {*self._event.violations}:
            yield (
                f"then {', '.join(self._event.violations) or 'nothing'} fired, now "
                f"{', '.join(now) or 'nothing'} would: the policy, an approval, or what other "
                "sessions used or marked makes the difference"
            )
        if self._state.sessions[self._event.session].cel_session["children"]:
            yield "what its sub-agents used is in their own journals"

    def _find_shared_marks(self) -> list[str]:
        """Return the marks of agents and projects that the rules about the call read."""
        rules = {rule.id for rule in self._bound.plan.rules}
        expressions = self._compiled.expressions
        found = [
            rule_reads(expressions, rule)
            for rule in self._compiled.policy.rules
            if f"rules/{rule.id}" in rules
        ]
        reads = frozenset[str]().union(*found)
        marks = self._compiled.evaluator.marks.values()
        return [
            one.name for one in marks if one.is_shared and reads_field(reads, f"mark.{one.name}")
        ]

    def _ask_rule(self, rule: CompiledRule) -> Iterator[EntryAnswer]:
        written = _find_rule(self._compiled.policy.rules, rule.id)
        saw = self._read(written)
        found = [id_ for id_ in (rule.id, *(case.id for case in rule.cases)) if id_ in self._fired]
        for id_ in found:
            yield self._answer(id_, "", _change_rule(written, self._fired[id_]), saw)
        if not found:
            try:
                text = self._why_not(rule)
            except ValueError:
                text = "it needs the arguments"
            yield EntryAnswer(entry=rule.id, effect="", text=text, saw=saw)

    def _why_not(self, rule: CompiledRule) -> str:
        waived = self._waived.get(rule.id)
        if waived is not None:
            return f"waived by {waived}"
        activation = self._attempt.activation
        if rule.selects is not None and not rule.selects(activation):
            return "its selectors do not match"
        for condition, reason in (
            (rule.when, "its `when` is false"),
            (rule.unless, "its `unless` is true"),
        ):
            if condition is not None:
                try:
                    if condition(activation) is (condition is rule.unless):
                        return reason
                except ExpressionError as error:
                    kept = self._event.args is not None
                    return f"it failed: {error}" if kept else "it needs the arguments"
        return "no case matches" if rule.cases else "approved or granted"

    def _answer(
        self, id_: str, silent: str, change: str, saw: dict[str, str] | None = None
    ) -> EntryAnswer:
        violation = self._fired.get(id_)
        if violation is None:
            waived = self._waived.get(id_)
            text = silent if waived is None else f"waived by {waived}"
            return EntryAnswer(entry=id_, effect="", text=text, saw=saw or {})
        return EntryAnswer(
            entry=id_,
            effect=violation.effect.value,
            text=violation.text,
            saw=saw or {},
            change=change,
            observed=id_ in self._observed,
        )

    def _answer_other(self, id_: str) -> EntryAnswer:
        """Return the answer of what is in no plan: a halt, a pin, a learned constraint."""
        violation = self._fired.get(id_)
        section, _, name = id_.partition("/")
        if violation is None and section in ("rules", "limits", "budgets"):
            text = "it fired then; this policy has no such entry for the call"
            return EntryAnswer(entry=id_, effect="", text=text)
        change = ""
        text = "it fired" if violation is None else violation.text
        if id_.startswith("constraints/"):
            text = "this was learned from failures"
            change = f"`policyguard constraints revoke {name}`; show {name} has the evidence"
        effect = self._event.effect if violation is None else violation.effect.value
        return EntryAnswer(entry=id_, effect=effect, text=text, change=change)

    def _describe_budget(self, budget: CompiledBudget) -> str:
        try:
            left = budget.remaining(self._state.ledger, self._attempt)
        except ValueError:  # its key is an argument
            left = None
        if left is None:
            return "its usage is not known"
        if budget.kind == "time":
            limit = format_duration(budget.max)
            return f"{format_duration(round(left * SCALE))} of {limit} left"
        return f"{format_number(left)} of {format_number(budget.max / SCALE)} left"

    def _change_limit(self, id_: str) -> str:
        violation = self._fired.get(id_)
        if violation is None:
            return ""
        most = "" if violation.limit is None else f" than {format_number(violation.limit)}"
        return f"other arguments, a new result, a new turn, or a `max` of more{most}"

    def _read(self, rule: Rule | None) -> dict[str, str]:
        """Return the values of the fields that a rule's expressions name."""
        if rule is None:
            return {}
        texts = [rule.when, rule.unless, *(case.when for case in rule.cases)]
        names = dict.fromkeys(name for text in texts if text for name in _READ.findall(text))
        return {name: self._look_up(name) for name in [*names][:_MAX_SAW]}

    def _look_up(self, name: str) -> str:
        root, *path = name.split(".")
        activation = self._attempt.activation
        if name.startswith("call.args") and self._event.args is None:
            return "(not kept)"
        value: Any
        if root == "params":
            value = {name: one.value for name, one in self._compiled.policy.params.items()}
        else:
            value = getattr(activation, root, None)
        for part in path:
            try:
                value = value[part]
            except (KeyError, TypeError, IndexError):
                return "(absent)"
        return quote_value(value, self.redact)


def _find_rule(rules: Iterable[Rule], id_: str) -> Rule | None:
    return next((rule for rule in rules if f"rules/{rule.id}" == id_), None)


def _change_rule(rule: Rule | None, violation: Violation) -> str:
    if violation.reason == "denied":
        return "the user's next message, or the end of the time for an approval"
    ways = []
    if rule is not None:
        if rule.when:
            ways.append(f"`{' '.join(rule.when.split())}` false")
        if rule.unless:
            ways.append(f"`{' '.join(rule.unless.split())}` true")
    if violation.effect is Effect.ASK:
        ways.append("an approval")
    return ", or ".join(ways) or "another tool"


def _earlier_answers(earlier: Sequence[Event], event: Admitted | Refused) -> list[str]:
    """Return the approvals that a call used: those of the same call since it last ran."""
    fingerprint = event.exact_fingerprint or event.fingerprint
    found: list[str] = []
    for one in reversed(earlier):
        if isinstance(one, Admitted) and fingerprint in (one.exact_fingerprint, one.fingerprint):
            break
        if isinstance(one, Approved) and one.fingerprint == fingerprint:
            found.insert(0, f"allowed by the approval of {one.by}, for call {one.call}")
    return found


def _answers(later: Iterable[Event], event: Admitted | Refused) -> Iterator[str]:
    fingerprint = event.exact_fingerprint or event.fingerprint
    for one in later:
        if isinstance(one, (Admitted, Refused)) and fingerprint in (
            one.exact_fingerprint,
            one.fingerprint,
        ):
            return  # a later attempt of the same call, with answers of its own
        if isinstance(one, Approved) and one.fingerprint == fingerprint:
            kept = f", remembered by its {one.remember}" if one.remember else ""
            yield f"approved by {one.by}{kept}"
        elif isinstance(one, Denied) and one.fingerprint == fingerprint:
            yield f"denied by {one.by}" + (f": {one.message}" if one.message else "")


def _result(later: Iterable[Event], event: Admitted | Refused) -> str:
    for one in later:
        if isinstance(one, Completed) and one.call == event.call:
            if one.state:
                return one.state
            text = one.error if one.error is not None else one.text
            return f"failed: {text}" if one.ok is False else f"ran: {text}"
        if isinstance(one, Released) and one.call == event.call:
            return "it did not run"
    return "no result"


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode("utf-8", "replace")
