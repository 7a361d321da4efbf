"""What a policy can still be asked about a call without its arguments, and what stays unknown."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.expressions import Expressions, Path, reads_field
from policyguard.evaluator.activation import Activation
from policyguard.evaluator.plan import Plan
from policyguard.model.entry import SelectiveEntry
from policyguard.model.errors import ExpressionError
from policyguard.model.event import Admitted, Refused
from policyguard.model.limits import Limit, RepeatLimit
from policyguard.model.policy import Policy
from policyguard.simulate.redacted import RESULT_FIELDS, RedactedResults

_KEPT_FIELDS = ("tool", "server", "class", "agent", "session", "batch", "tags", "hints")
"""Fields of `call` that a journal keeps whatever it does with the arguments."""
_ARGUMENT_SELECTORS = ("commands", "paths", "hosts", "finds")
"""Selectors that look at the arguments."""
_HISTORY_FIELDS = ("call.previous", "session.progress")
"""What expressions see of earlier calls and their arguments; and counts by class, of `session`."""


class Applicability(NamedTuple):
    """What a policy can be asked about a call.

    `applying` are the entries that it may come under, `hidden` those of them whose answer is not
    known, and `unsettled` the entries of which it is not known afterwards what they have counted.
    `changing`: it is known whether the call may change state. `plans` are the kinds of call that it
    may be; arguments that were not kept may have told which.
    """

    applicable: frozenset[str]
    undecidable: frozenset[str]
    uncertain_counts: frozenset[str]
    knows_state_change: bool
    plans: tuple[Plan, ...]


class PartialEvaluator:
    """A policy, asked about calls of which something was not kept.

    `observed` are its entries in observe mode, `by_results` those that count what results say.
    """

    def __init__(self, compiled: CompiledPolicy) -> None:
        self._evaluator = compiled.evaluator
        self._policy = compiled.policy
        reads = dict(_entry_reads(compiled.policy, compiled.expressions))
        unseen = {entry for entry, fields in reads.items() if not _reads_kept_fields(fields)}
        self._undecidable = frozenset(unseen.union(_entries_selecting_args(compiled.policy)))
        self._class_readers = _entries_reading(reads, ("call.class",))
        self._history_readers = _entries_reading(reads, _HISTORY_FIELDS)
        self._learns_from_args = any(
            entry.ban == "target"
            or any((entry.parameters, entry.key, entry.scope_key, entry.count_by))
            for entry in compiled.learning.values()
        )
        self._learns_by_class = any(entry.ban == "class" for entry in compiled.learning.values())
        self.results = RedactedResults(compiled)
        self.observe_only = frozenset(_observed_entries(compiled.policy))
        self.result_readers = _entries_reading(
            reads, tuple(f"outcome.{name}" for name in RESULT_FIELDS)
        )
        most = compiled.policy.bounds.plans
        self._plans = lru_cache(most)(self._find_plans)
        self._applicable = lru_cache(most)(self._find_applicable)

    def assess(self, event: Admitted | Refused, agent: str) -> Applicability:
        """What can be told of a call."""
        plans = self._plans(event.tool, event.server, agent)
        applying, hidden = self._applicable(plans, identified=bool(event.fingerprint))
        if event.args is not None:
            return Applicability(
                applying, frozenset(), frozenset(), knows_state_change=True, plans=plans
            )
        counting = frozenset(entry for entry in hidden if not entry.startswith("rules/"))
        answers = {self._changes_state(plan, event, agent) for plan in plans}
        return Applicability(
            applying,
            hidden,
            counting | self._history_readers,
            knows_state_change=len(answers) == 1 and None not in answers,
            plans=plans,
        )

    def _find_plans(self, tool: str, server: str, agent: str) -> tuple[Plan, ...]:
        """What calls of a tool may come under: a plan for each class that they may have."""
        options = self._evaluator.candidates(tool, server).options
        classes = [name for name, _ in options]
        if not options or options[-1][1] is not None:
            classes.append("")
        return tuple(
            self._evaluator.plan(tool, server, agent, name) for name in dict.fromkeys(classes)
        )

    def _find_applicable(
        self, plans: tuple[Plan, ...], *, identified: bool
    ) -> tuple[frozenset[str], frozenset[str]]:
        """The entries that may apply, and those of them that cannot be asked without arguments.

        `identified`: the call's fingerprint was kept.
        """
        each = [_plan_entries(plan) for plan in plans]
        applying = frozenset[str]().union(*each)
        hidden = self._undecidable & applying
        if len(plans) > 1:  # the arguments tell the class
            hidden |= applying.difference(applying.intersection(*each))
            hidden |= self._class_readers & applying
        if not identified:
            hidden |= {entry for entry in applying if entry.startswith("limits/")}
        if self._policy.learn is not None:
            applying |= {"learn"}
            by_class = self._learns_by_class and len(plans) > 1
            if self._learns_from_args or by_class or not identified:
                hidden |= {"learn"}
        if self._policy.radius:
            applying |= {"radius"}
            hidden |= {"radius"}
        return applying, hidden

    def _changes_state(self, plan: Plan, event: Admitted | Refused, agent: str) -> bool | None:
        """Whether the call may change state; None where what is hidden would tell: it is missed."""
        if isinstance(plan.state_changing, bool):
            return plan.state_changing
        kept: Any = SimpleNamespace(
            tool=event.tool,
            server=event.server,
            class_=plan.class_,
            session=SimpleNamespace(agent=agent, id=event.session),
            batch=event.batch,
            hints=event.hints,
        )
        view = Activation(kept, self._evaluator.activation_context, None)
        view.session, view.tags, view.now = {}, {}, None
        try:
            return plan.state_changing(view) is not False
        except ExpressionError:
            return None


def violation_entry(violation: str) -> str:
    """The entry, or the part of the policy, that a violation is counted under here."""
    kind = violation.partition("/")[0]
    if kind == "limits":  # of `polling`, the violation says which half of it
        return violation.removesuffix("/cooldown").removesuffix("/unchanged")
    return {"constraints": "learn", "radius": "radius"}.get(kind, violation)


def _plan_entries(plan: Plan) -> frozenset[str]:
    """The ids of all that a plan has to say."""
    found = {one.id for group in (plan.limits, plan.budgets, plan.rules) for one in group}
    return frozenset(found if plan.refusals is None else {*found, plan.refusals.id})


def _entry_reads(policy: Policy, expressions: Expressions) -> Iterator[tuple[str, frozenset[str]]]:
    """What each entry reads, by id."""
    for rule in policy.rules:
        # A message may show an argument, and that is all it does: the verdict is known.
        yield f"rules/{rule.id}", _union_reads(expressions, ("rules", rule.id), ("when", "unless"))
    for budget in policy.budgets:
        path = ("budgets", budget.id)
        keys = [("per", number + 1) for number in range(len(budget.per.keys))]
        reads = _union_reads(expressions, path, ("when", "sum"))
        yield (
            f"budgets/{budget.id}",
            reads.union(*(expressions.reads(*path, *key) for key in keys)),
        )
    for level in policy.limits:
        reads = expressions.reads("limits", *level.split(":", 1), "repeat", "key")
        yield f"limits/{level}/repeat", reads


def _entries_reading(reads: dict[str, frozenset[str]], fields: tuple[str, ...]) -> frozenset[str]:
    """The entries that read one of these fields."""
    return frozenset(
        entry for entry, told in reads.items() if any(reads_field(told, field) for field in fields)
    )


def _union_reads(expressions: Expressions, path: Path, fields: tuple[str, ...]) -> frozenset[str]:
    return frozenset[str]().union(*(expressions.reads(*path, field) for field in fields))


def _entries_selecting_args(policy: Policy) -> Iterator[str]:
    """The ids of entries that look at arguments without an expression."""
    for kind, entries in (("rules", policy.rules), ("budgets", policy.budgets)):
        yield from (f"{kind}/{entry.id}" for entry in entries if _selects_args(entry))
    for level, limits in policy.limits.items():
        if isinstance(limits.repeat, RepeatLimit) and limits.repeat.same == "target":
            yield f"limits/{level}/repeat"


def _observed_entries(policy: Policy) -> Iterator[str]:
    for rule in policy.rules:
        if rule.mode == "observe":
            yield f"rules/{rule.id}"
    for budget in policy.budgets:
        if budget.mode == "observe":
            yield f"budgets/{budget.id}"
    for level, limits in policy.limits.items():
        for kind in limits.__struct_fields__:
            limit = getattr(limits, kind)
            if isinstance(limit, Limit) and (limit.mode or limits.mode) == "observe":
                yield f"limits/{level}/{kind}"


def _reads_kept_fields(reads: frozenset[str]) -> bool:
    """Whether all that is read of a call was kept, and so all that marks were made of."""
    kept = {f"call.{name}" for name in _KEPT_FIELDS}
    for read in reads:
        variable, *fields = read.split(".")
        if variable == "mark" or (
            variable == "call" and (not fields or f"call.{fields[0]}" not in kept)
        ):
            return False
    return True


def _selects_args(entry: SelectiveEntry) -> bool:
    return any(getattr(entry, selector) is not None for selector in _ARGUMENT_SELECTORS)
