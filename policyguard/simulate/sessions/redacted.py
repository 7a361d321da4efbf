"""Replays of redacted journals: placeholders for data, and which entries can be decided.

Fingerprints replace arguments and results, so the replay still knows which of them are the same (as
the recording policy saw it). Limits and most budgets work; entries that read arguments do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.entry_paths import Path
from policyguard.compiler.build.exceptions import find_waived, list_waivable
from policyguard.compiler.build.expressions import Expressions, reads_field, rule_reads
from policyguard.evaluator.activation import Activation
from policyguard.evaluator.plan import Plan
from policyguard.journal.redaction import FINGERPRINT_MARK
from policyguard.model.entry import SelectiveEntry
from policyguard.model.errors import ExpressionError
from policyguard.model.event import Admitted, Completed, Marked, Refused
from policyguard.model.limits import iter_limits, limit_id, limits_of
from policyguard.model.policy import Policy
from policyguard.model.tool_name import ToolName, full_name_alias
from policyguard.simulate.sessions.redacted_marks import MarkDependencies, Reach

_KEPT_FIELDS = ("tool", "server", "class", "classes", "agent", "session", "batch", "tags", "hints")
"""Fields of `call` that a journal always keeps."""
_KEPT_PATHS = frozenset(f"call.{name}" for name in _KEPT_FIELDS)
_ARGUMENT_SELECTORS = ("commands", "paths", "hosts", "finds")
"""Selectors that read the arguments."""
_HISTORY_FIELDS = ("call.previous", "session.progress")
"""Fields that depend on the arguments of earlier calls, like the counts of `session` by class."""

RESULT_FIELDS = ("text", "error", "chars", "data", "signature", "meta", "changed")
"""Fields of `outcome` that are unknown if results are redacted."""
_REDACTED_TEXT = re.compile(
    rf"(?:{FINGERPRINT_MARK}[0-9a-f]{{24}}|\[\d+ lines?, \d+ characters\]|{FINGERPRINT_MARK})?"
)
"""A redacted text: a fingerprint, its size, or nothing."""
_HEX_TO_LETTERS = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")
"""Error normalization masks hashes and numbers, but not letters."""


class Applicability(NamedTuple):
    """The entries that may apply to a call, and what is known about them.

    `applicable` entries may apply, `undecidable` ones among them cannot be decided, and
    `uncertain_counts` are entries whose counts are unknown after the call. `plans` are the possible
    plans of the call, several if its classes depend on redacted arguments: then those with the
    fewest and with the most classes, since one more class never takes an entry away. `reach` has
    those of `uncertain_counts` that are uncertain in other sessions, too.
    """

    applicable: frozenset[str]
    undecidable: frozenset[str]
    uncertain_counts: frozenset[str]
    knows_state_change: bool
    plans: tuple[Plan, ...]
    reach: Reach = Reach()


class PartialEvaluator:
    """An evaluator of calls with redacted data.

    `observe_only` are the policy's entries in observe mode.
    """

    def __init__(self, compiled: CompiledPolicy) -> None:
        self._evaluator = compiled.evaluator
        self._policy = compiled.policy
        own_reads = dict(_entry_reads(compiled.policy, compiled.expressions))
        self._marks = MarkDependencies(compiled.policy, compiled.expressions, own_reads)
        reads = {entry: self._marks.expand(entry, read) for entry, read in own_reads.items()}
        redacted = {entry for entry, fields in own_reads.items() if not _reads_kept_fields(fields)}
        self._undecidable = frozenset(redacted.union(_entries_selecting_args(compiled.policy)))
        self._undecidable |= _waivable_by_args(compiled)
        self._class_readers = _entries_reading(own_reads, ("call.class", "call.classes"))
        self._changes_read_classes = reads_field(
            compiled.expressions.reads("classify", "state_changing"), "call.classes"
        )
        self._history_readers = _entries_reading(reads, _HISTORY_FIELDS)
        self._learns_from_args = any(
            entry.ban == "target"
            or any((entry.parameters, entry.key, entry.scope_key, entry.count_by))
            for entry in compiled.learning.values()
        )
        self._learns_by_class = any(entry.ban == "class" for entry in compiled.learning.values())
        self.results = RedactedResults(compiled)
        self.observe_only = frozenset(_observed_entries(compiled.policy))
        self._result_readers = _entries_reading(
            reads, tuple(f"outcome.{name}" for name in RESULT_FIELDS)
        )
        self._limits = frozenset(_limit_entries(compiled.policy))
        max_plans = compiled.policy.bounds.plans
        self._plans = lru_cache(max_plans)(self._find_plans)
        self._applicable = lru_cache(max_plans)(self._find_applicable)

    def assess(self, event: Admitted | Refused, agent: str) -> Applicability:
        """Return which entries may apply to a call, and which of them can be decided."""
        plans = self._plans(event.tool_name, agent)
        applicable, undecidable = self._applicable(plans, identified=bool(event.fingerprint))
        if event.args is not None:
            return Applicability(
                applicable, frozenset(), frozenset(), knows_state_change=True, plans=plans
            )
        counting = frozenset(entry for entry in undecidable if not entry.startswith("rules/"))
        changes = {self._changes_state(plan, event, agent) for plan in plans}
        if len(plans) > 1 and self._changes_read_classes:
            changes = {None}  # plans stand for all classes between the fewest and the most
        reach = self._marks.reach(self._marks.undecided(plans, _KEPT_PATHS))
        return Applicability(
            applicable,
            undecidable,
            counting | self._history_readers | reach.run,
            knows_state_change=len(changes) == 1 and None not in changes,
            plans=plans,
            reach=reach,
        )

    def uncertain_marks(self, event: Marked) -> Reach:
        """Return the entries that depend on keys which the host has marked or unmarked."""
        named = [change.mark for change in (*event.marks, *event.cleared)]
        return self._marks.reach(self._marks.keyed(named))

    @cached_property
    def marks_by_result(self) -> Reach:
        """The entries that depend on marks which a redacted result may set."""
        return self._marks.reach(self._marks.reading(f"outcome.{name}" for name in RESULT_FIELDS))

    def uncertain_after(self, event: Completed) -> frozenset[str]:
        """Return the entries whose counts are unknown after an undecidable result."""
        if not self.results.has_unknown_state(event):
            return self._result_readers
        return self._result_readers | self._limits

    def _find_plans(self, name: ToolName, agent: str) -> tuple[Plan, ...]:
        """Return the plans for the classes that a call of the tool may have."""
        tool, server, host_tool = name
        alias = full_name_alias(tool, server, host_tool)
        candidates = self._evaluator.candidates(tool, server, alias)
        return tuple(
            self._evaluator.plan(tool, server, agent, classes, alias)
            for classes in dict.fromkeys(candidates.extremes())
        )

    def _find_applicable(
        self, plans: tuple[Plan, ...], *, identified: bool
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return the entries that may apply, and those among them that need the arguments.

        `identified`: the call has a fingerprint.
        """
        by_plan = [_plan_entries(plan) for plan in plans]
        applicable = frozenset[str]().union(*by_plan)
        undecidable = self._undecidable & applicable
        if len(plans) > 1:  # the class depends on the arguments
            undecidable |= applicable.difference(applicable.intersection(*by_plan))
            undecidable |= self._class_readers & applicable
        if not identified:
            undecidable |= {entry for entry in applicable if entry.startswith("limits/")}
        if self._policy.learn is not None:
            applicable |= {"learn"}
            by_class = self._learns_by_class and len(plans) > 1
            if self._learns_from_args or by_class or not identified:
                undecidable |= {"learn"}
        if self._policy.radius:
            applicable |= {"radius"}
            undecidable |= {"radius"}
        return applicable, undecidable

    def _changes_state(self, plan: Plan, event: Admitted | Refused, agent: str) -> bool | None:
        """Return whether the call may change state, None if that depends on redacted data."""
        if isinstance(plan.state_changing, bool):
            return plan.state_changing
        call: Any = SimpleNamespace(
            tool=event.tool,
            server=event.server,
            class_=plan.class_,
            classes=list(plan.classes),
            session=SimpleNamespace(agent=agent, id=event.session),
            batch=event.batch,
            hints=event.hints,
        )
        activation = Activation(call, self._evaluator.activation_context, None)
        activation.session, activation.tags, activation.now = {}, {}, None
        activation.mark = {}
        try:
            return plan.state_changing(activation) is not False
        except ExpressionError:
            return None


def violation_entry(violation: str) -> str:
    """Return the entry, or section of the policy, that a violation belongs to."""
    kind = violation.partition("/")[0]
    if kind == "limits":  # violations of `polling` name one of its two parts
        return violation.removesuffix("/cooldown").removesuffix("/unchanged")
    if kind == "rules":  # violations of a rule with cases name one of them
        return "/".join(violation.split("/")[:2])
    return {"constraints": "learn", "radius": "radius"}.get(kind, violation)


def _plan_entries(plan: Plan) -> frozenset[str]:
    """Return the ids of a plan's entries."""
    ids = {entry.id for group in (plan.limits, plan.budgets, plan.rules) for entry in group}
    return frozenset(ids if plan.refusals is None else {*ids, plan.refusals.id})


def _entry_reads(policy: Policy, expressions: Expressions) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the id of each entry, and the fields it reads."""
    for rule in policy.rules:
        # Messages do not count: they show arguments, but decide nothing.
        yield f"rules/{rule.id}", rule_reads(expressions, rule)
    for budget in policy.budgets:
        path = ("budgets", budget.id)
        keys = [("per", number + 1) for number in range(len(budget.per.keys))]
        reads = _union_reads(expressions, path, ("when", "sum", "distinct"))
        yield (
            f"budgets/{budget.id}",
            reads.union(*(expressions.reads(*path, *key) for key in keys)),
        )
    for level in policy.limits:
        reads = expressions.reads("limits", *level.split(":", 1), "repeat", "key")
        yield f"limits/{level}/repeat", reads


def _entries_reading(reads: dict[str, frozenset[str]], fields: tuple[str, ...]) -> frozenset[str]:
    """Return the entries that read one of these fields."""
    return frozenset(
        entry for entry, read in reads.items() if any(reads_field(read, field) for field in fields)
    )


def _union_reads(expressions: Expressions, path: Path, fields: tuple[str, ...]) -> frozenset[str]:
    return frozenset[str]().union(*(expressions.reads(*path, field) for field in fields))


def _entries_selecting_args(policy: Policy) -> Iterator[str]:
    """Yield the ids of entries that read arguments without an expression."""
    for kind, entries in (("rules", policy.rules), ("budgets", policy.budgets)):
        yield from (f"{kind}/{entry.id}" for entry in entries if _selects_args(entry))
    yield from (f"rules/{rule.id}" for rule in policy.rules if any(map(_selects_args, rule.cases)))
    for level, limits in policy.limits.items():
        for index, repeat in enumerate(limits_of(limits, "repeat")):
            if repeat.same == "target":
                yield limit_id(level, "repeat", index, repeat)


def _waivable_by_args(compiled: CompiledPolicy) -> frozenset[str]:
    """Return the entries that an exception waives whose condition reads redacted data."""
    exceptions, known = compiled.policy.exceptions, list_waivable(compiled.policy)
    return frozenset(
        violation_entry(id_)
        for entry in exceptions
        if not _reads_kept_fields(compiled.expressions.reads("exceptions", entry.id, "when"))
        for name in entry.rules
        for id_ in find_waived(name, known)
    )


def _observed_entries(policy: Policy) -> Iterator[str]:
    for rule in policy.rules:
        if rule.mode == "observe":
            yield f"rules/{rule.id}"
    for budget in policy.budgets:
        if budget.mode == "observe":
            yield f"budgets/{budget.id}"
    for result_rule in policy.result_rules:
        if result_rule.mode == "observe":
            yield f"result_rules/{result_rule.id}"
    for level, limits in policy.limits.items():
        for kind, index, limit in iter_limits(limits):
            if (limit.mode or limits.mode) == "observe":
                yield limit_id(level, kind, index, limit)


def _limit_entries(policy: Policy) -> Iterator[str]:
    for level, limits in policy.limits.items():
        for kind, index, limit in iter_limits(limits):
            yield limit_id(level, kind, index, limit)


def _reads_kept_fields(reads: frozenset[str]) -> bool:
    """Return whether a journal keeps everything read of the call itself."""
    for read in reads:
        variable, *fields = read.split(".")
        if variable == "call" and (not fields or f"call.{fields[0]}" not in _KEPT_PATHS):
            return False
    return True


def _selects_args(entry: SelectiveEntry) -> bool:
    return any(getattr(entry, selector) is not None for selector in _ARGUMENT_SELECTORS)


class RedactedResults:
    """How a policy treats results with redacted text."""

    def __init__(self, compiled: CompiledPolicy) -> None:
        policy, outcomes = compiled.policy, compiled.policy.outcomes
        halting = {rule.id for rule in policy.result_rules if rule.effect == "halt"}
        reads = compiled.expressions.all_reads(
            # Other rules on results change no later decision.
            but=lambda path: path[0] == "result_rules" and path[1] not in halting
        )
        self._reads_text = (
            not reads.isdisjoint(("outcome", *(f"outcome.{name}" for name in RESULT_FIELDS)))
            or any(read.startswith(("outcome.meta.", "outcome.data.")) for read in reads)
            or any(rule.effect == "halt" and rule.finds for rule in policy.result_rules)
            or bool(outcomes.envelope)
            or any(signature.on != "error" for signature in policy.signatures)
        )
        self._reads_flags = bool(outcomes.meta.non_advancing or outcomes.meta.harness)
        self._distinguishes_errors = any(compiled.learning) or any(
            limits.no_progress or any(one.signature for one in limits_of(limits, "failures"))
            for limits in policy.limits.values()
        )

    def is_undecidable(self, event: Completed) -> bool:
        """Return whether later decisions depend on the redacted text or flags of a result."""
        has_failed = not event.ok or event.error is not None
        return (self._distinguishes_errors and has_failed) or self.has_unknown_state(event)

    def has_unknown_state(self, event: Completed) -> bool:
        """Return whether a redacted text or flag decides what kind of result it is."""
        return self._reads_text or (
            self._reads_flags and bool(event.meta or event.harness_flagged or not event.advancing)
        )


def with_placeholder_args(event: Admitted | Refused, index: int) -> Admitted | Refused:
    """Return the call with arguments that are equal for equal fingerprints."""
    placeholder = event.fingerprint or f"the call at {index}"
    return msgspec.structs.replace(event, args={FINGERPRINT_MARK: placeholder})


def with_fingerprints(event: Completed) -> Completed | None:
    """Return the result with fingerprints as its texts, or None if the texts are not redacted.

    Also None if the recording has no fingerprints. What result rules have edited is not the result.
    """
    if not event.result_fingerprint:
        return None
    if not event.edited and not _REDACTED_TEXT.fullmatch(event.text):
        return None
    if event.error is not None and not (event.edited or _REDACTED_TEXT.fullmatch(event.error)):
        return None
    error = event.error_fingerprint.translate(_HEX_TO_LETTERS) if event.ok is False else None
    return msgspec.structs.replace(event, text=event.result_fingerprint, error=error)
