"""Build plans: the entries of a checked policy that apply to a kind of call."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from policyguard.compiler.build.entry_paths import Path, limit_path
from policyguard.compiler.build.expressions import Expressions, reads_field
from policyguard.compiler.build.messages import build_message, build_redactor
from policyguard.compiler.build.read_classes import find_read_classes
from policyguard.compiler.build.selectors import (
    compile_class_matcher,
    compile_selector,
    compile_selectors,
    compile_tool_glob,
    tool_glob_specificity,
)
from policyguard.evaluator.activation import Expression
from policyguard.evaluator.approvals import ApprovalRequirement
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.cycle import CycleChecker
from policyguard.evaluator.limits.escalation import Escalation
from policyguard.evaluator.limits.failures import FailuresChecker
from policyguard.evaluator.limits.no_progress import NoProgressChecker
from policyguard.evaluator.limits.outage import OutageChecker
from policyguard.evaluator.limits.polling import UNBOUNDED, PollingChecker
from policyguard.evaluator.limits.refusals import RefusalsChecker
from policyguard.evaluator.limits.repeat import RepeatChecker
from policyguard.evaluator.limits.stale import SameResultChecker, StaleChecker, UnchangedChecker
from policyguard.evaluator.plan import ClassCandidates, ClassOption, Plan
from policyguard.evaluator.rule import CompiledRule, RuleSet
from policyguard.model.amounts import SCALE
from policyguard.model.entry import Entry
from policyguard.model.limits import Budget as BudgetEntry
from policyguard.model.limits import Limit as AnyLimit
from policyguard.model.limits import (
    LimitLevel,
    RefusalsLimit,
    RepeatLimit,
    limit_id,
    limits_of,
)
from policyguard.model.policy import Policy
from policyguard.model.policy import Rule as RuleEntry

LIMIT_KINDS = ("stale", "repeat", "cycle", "no_progress", "failures", "outage", "polling")
"""In the order of evaluation. `stale` and `repeat` come first: what brings nothing new ends no row
of failures."""


class PlanBuilder:
    """Builds the plan of a kind of call: its classes, limits, budgets and rules.

    State keeps the `digest` of a call's values, never the values.
    """

    def __init__(
        self, policy: Policy, expressions: Expressions, digest: Callable[[str], str]
    ) -> None:
        self._digest = digest
        self.redact = build_redactor(policy)
        self._policy = policy
        self._expressions = expressions
        self._limits = {
            level: {
                kind: self._build_limits(level, kind, limits)
                for kind in LIMIT_KINDS
                if getattr(limits, kind) is not None
            }
            for level, limits in policy.limits.items()
        }
        self._refusals = {
            level: _build_refusals(level, limits)
            for level, limits in policy.limits.items()
            if limits.refusals is not None
        }
        tools = [level for level in policy.limits if level.startswith("tools:")]
        tools.sort(key=lambda level: tool_glob_specificity(level[6:]), reverse=True)
        self._tool_levels = [(level, compile_tool_glob(level[6:])) for level in tools]
        self.budgets = {
            f"budgets/{entry.id}": self._build_budget(entry) for entry in policy.budgets
        }
        self._budget_selectors = [
            (compile_selectors(entry), self.budgets[f"budgets/{entry.id}"])
            for entry in policy.budgets
        ]
        self._rules = [
            (compile_selectors(entry), compile_selector(entry.agents), self._build_rule(entry))
            for entry in policy.rules
        ]
        self._class_matchers = [
            (
                entry,
                compile_class_matcher(entry),
                expressions.get("classify", "classes", index, "when"),
            )
            for index, entry in enumerate(policy.classify.classes)
        ]
        self._read_classes = find_read_classes(policy, expressions)
        # Many tools share their rules, and compiling a prefilter is the slowest step.
        self._cached_rules = lru_cache(policy.bounds.plans)(self._build_rules)
        self._state_changing = self._build_state_changing()
        self._kind_only = self._reads_kind_only()

    def candidates(self, tool: str, server: str, alias: str = "") -> ClassCandidates:
        """Return the classes that calls of a tool may have, in matching order.

        Once the main class is certain, only those that something reads are left.
        """
        options: list[ClassOption] = []
        certain: set[str] = set()
        for entry, matches_name, when in self._class_matchers:
            name = entry.class_
            if name in certain or not matches_name(tool, server, alias):
                continue
            is_read = name in self._read_classes
            if is_read or not certain:
                options.append(ClassOption(name, when, is_read))
                if when is None:
                    certain.add(name)
        return ClassCandidates(tuple(options))

    def build_plan(
        self, tool: str, server: str, agent: str, classes: tuple[str, ...], alias: str = ""
    ) -> Plan:
        """Build the plan for an agent's calls of a tool in these classes, the main one first."""
        class_ = classes[0] if classes else ""
        levels = [level for level, matches in self._tool_levels if matches(tool, server, alias)]
        levels += [f"classes:{class_}", "default"]
        refusals = (self._refusals[level] for level in levels if level in self._refusals)
        timeout, timeout_by = self._find_timeout(levels)
        return Plan(
            tool=tool,
            classes=classes,
            limits=self._select_limits(levels),
            budgets=tuple(
                budget
                for selected, budget in self._budget_selectors
                if selected(tool, server, alias, classes)
            ),
            rules=self._cached_rules(
                tuple(
                    rule
                    for selected, agents, rule in self._rules
                    if selected(tool, server, alias, classes) and agents(agent)
                )
            ),
            state_changing=self._state_changing(classes),
            kind_only=self._kind_only,
            refusals=next(refusals, None),
            timeout=timeout,
            timeout_by=timeout_by,
        )

    def refusal_limit_ids(self) -> tuple[str, ...]:
        """Return the ids of all `refusals` limits."""
        return tuple(limit.id for limit in self._refusals.values() if limit is not None)

    def approvals(self) -> dict[str, ApprovalRequirement]:
        """Return the approval requirement of each rule that has one."""
        return {rule.id: rule.approval for _, _, rule in self._rules if rule.approval is not None}

    def _find_timeout(self, levels: list[str]) -> tuple[int | None, str]:
        """Return the timeout of a call, and the id of the limit that sets it."""
        for level in levels:
            limits = self._policy.limits.get(level)
            if limits is not None and limits.timeout is not None:
                if limits.timeout == "none" or _is_observed(limits):
                    return None, ""
                return limits.timeout, f"limits/{level}/timeout"
        return None, ""

    def _select_limits(self, levels: list[str]) -> tuple[LimitChecker, ...]:
        """Return the limit of each kind from the most specific level: tool, class, default."""
        chosen: dict[str, tuple[int, tuple[LimitChecker, ...]]] = {}
        for kind in LIMIT_KINDS:
            for rank, level in enumerate(levels):
                if kind in self._limits.get(level, ()):
                    chosen[kind] = (rank, self._limits[level][kind])
                    break
        if "polling" in chosen and chosen["polling"][1]:
            # polling replaces them, unless they are more specific
            for kind in ("repeat", "cycle", "stale"):
                if kind in chosen and chosen[kind][0] >= chosen["polling"][0]:
                    del chosen[kind]
        return tuple(limit for _, limits in chosen.values() for limit in limits)

    def _build_limits(self, level: str, kind: str, limits: LimitLevel) -> tuple[LimitChecker, ...]:
        """Build the limits of one kind; none if it is switched off."""
        entries = limits_of(limits, kind)
        return tuple(
            self._build_limit(level, kind, index, entry, limits)
            for index, entry in enumerate(entries)
        )

    def _build_limit(
        self, level: str, kind: str, index: int, entry: Any, limits: LimitLevel
    ) -> LimitChecker:
        id_ = limit_id(level, kind, index)
        settings = _limit_settings(id_, entry, limits)
        max_entries = self._policy.bounds.window_entries
        if kind == "repeat":
            return self._build_repeat(settings, level, index, entry)
        if kind == "cycle":
            return CycleChecker(
                **settings, max=entry.max, longest=entry.longest, shortest=entry.shortest
            )
        if kind == "stale":
            return StaleChecker(**settings, max=entry.max, window=entry.window)
        if kind == "no_progress":
            return NoProgressChecker(**settings, max=entry.max, max_tools=max_entries)
        if kind == "failures":
            return FailuresChecker(
                **settings,
                max=entry.max,
                by="call" if entry.same == "call" else entry.by or "",
                same_error=entry.same == "error",
                signature=entry.signature or "",
                max_names=max_entries,
                probe_timeout=self._policy.bounds.unreported,
            )
        if kind == "outage":
            return OutageChecker(
                **settings,
                max=entry.max,
                within=entry.within,
                cooldown=entry.cooldown,
                # Tools of one glob fail together; tools of one class do not.
                shared=level.startswith("tools:"),
                max_breakers=max_entries,
                probe_timeout=self._policy.bounds.unreported,
            )
        return PollingChecker(
            **settings,
            max=UNBOUNDED if entry.unchanged is None else entry.unchanged,
            cooldown=entry.cooldown,
            unchanged=entry.unchanged,
            max_polls=max_entries,
        )

    def _build_repeat(
        self, settings: dict[str, Any], level: str, index: int, entry: RepeatLimit
    ) -> LimitChecker:
        if entry.same == "result":
            return SameResultChecker(**settings, max=entry.max, window=1)
        window = self._policy.bounds.window_entries if entry.window == "all" else entry.window
        if entry.despite_changes:
            return UnchangedChecker(**settings, max=entry.max, window=window)
        path = limit_path(self._policy.limits[level], level, "repeat", index)
        expression = self._expressions.get(*path, "key")
        key: Callable[[Attempt], str] | None = None
        if expression is not None:
            key = _value_key(expression, self._digest)
        elif entry.same == "error":
            key = _tool_key
        elif entry.same == "target":
            key = _target_key(self._digest)
        return RepeatChecker(
            **settings,
            max=entry.max,
            window=window,
            same="key" if expression is not None else entry.same,
            key=key,
        )

    def _build_budget(self, entry: BudgetEntry) -> CompiledBudget:
        path: Path = ("budgets", entry.id)
        kind, limit = next(
            (kind, getattr(entry, kind))
            for kind in ("calls", "tokens", "cost", "time", "concurrent", "sum")
            if getattr(entry, kind) is not None
        )
        if kind == "sum":
            limit = entry.max or 0
        when = self._expressions.reads(*path, "when")
        total = self._expressions.reads(*path, "sum")
        unit = 1 if kind == "time" else SCALE
        return CompiledBudget(
            id=f"budgets/{entry.id}",
            kind=kind,
            max=round(limit * unit),
            scope=entry.per.scope,
            keys=tuple(
                expression
                for index in range(1, len(entry.per.keys) + 1)
                if (expression := self._expressions.get(*path, "per", index)) is not None
            ),
            within=entry.within,
            when=self._expressions.get(*path, "when"),
            when_post_paid=reads_field(when, "outcome"),
            sum=self._expressions.get(*path, "sum"),
            post_paid=kind in ("tokens", "cost") or reads_field(when | total, "outcome"),
            is_owned_by=compile_selector(entry.agents),
            selective=any((entry.tools, entry.servers, entry.classes, entry.when, entry.per.keys)),
            escalation=Escalation(
                entry.effect,
                **{
                    name: None if amount is None else round(amount * unit)
                    for name, amount in _thresholds(entry).items()
                },
            ),
            reserve=round((entry.reserve or 0) * SCALE),
            extend=None if entry.extend is None else round(entry.extend * unit),
            message=build_message(entry.message, self.redact),
            instead=build_message(entry.instead, self.redact),
            observe=_is_observed(entry),
            reads_time=entry.within is not None or _reads_time(when | total),
            digest=self._digest,
            max_charges=self._policy.bounds.window_entries,
            max_keys=self._policy.bounds.budget_keys,
        )

    def _build_rule(self, entry: RuleEntry) -> CompiledRule:
        path: Path = ("rules", entry.id)
        return CompiledRule(
            id=f"rules/{entry.id}",
            when=self._expressions.get(*path, "when"),
            unless=self._expressions.get(*path, "unless"),
            effect=entry.effect,
            on_error=entry.on_error,
            message=build_message(entry.message, self.redact),
            instead=build_message(entry.instead, self.redact),
            observe=_is_observed(entry),
            reads_time=_reads_time(
                self._expressions.reads(*path, "when") | self._expressions.reads(*path, "unless")
            ),
            approval=_build_approval(entry),
        )

    def _build_rules(self, rules: tuple[CompiledRule, ...]) -> RuleSet:
        paths: list[Path] = [(*rule.id.split("/", 1), "when") for rule in rules]
        rule_set = RuleSet(rules)
        rule_set.compile_prefilter = lambda: self._expressions.prefilter(paths)
        return rule_set

    def _reads_kind_only(self) -> bool:
        """Return whether `state_changing` reads only the kind of call, hints and command."""
        for read in self._expressions.reads("classify", "state_changing"):
            root, _, field = read.partition(".")
            if root == "call" and field.partition(".")[0] not in (*_KIND_FIELDS, "command"):
                return False
            if root not in ("call", "lists", "params"):
                return False
        return True

    def _build_state_changing(self) -> Callable[[tuple[str, ...]], Expression | bool]:
        """Return a function of the classes: the condition, or whether calls may change state."""
        changing = self._policy.classify.state_changing
        if isinstance(changing, str):
            condition = self._expressions.get("classify", "state_changing") or True
            return lambda classes: condition
        if changing is None:
            return lambda classes: True
        named = frozenset(changing)
        return lambda classes: not classes or not named.isdisjoint(classes)


_KIND_FIELDS = ("tool", "server", "class", "classes", "agent", "hints")
"""Fields of `call` that all calls of one plan share, unless they have hints."""


def _build_refusals(level: str, limits: LimitLevel) -> RefusalsChecker | None:
    entry = limits.refusals
    if not isinstance(entry, RefusalsLimit):
        return None
    settings = _limit_settings(f"limits/{level}/refusals", entry, limits)
    return RefusalsChecker(**settings, max=entry.max)


def _limit_settings(id_: str, entry: AnyLimit, limits: LimitLevel) -> dict[str, Any]:
    """Return the settings that all limits share."""
    return {
        "id": id_,
        "escalation": Escalation(entry.effect, **_thresholds(entry)),
        "per_turn": entry.per == "turn",
        "counts_tree": getattr(entry, "count", "") == "tree",
        "observe": _is_observed(entry, limits),
        "refuse_tool": entry.refuse == "tool",
        "until": entry.until or "",
    }


def _thresholds(entry: AnyLimit | BudgetEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in ("advise_at", "ask_at", "halt_at")}


def _build_approval(entry: RuleEntry) -> ApprovalRequirement | None:
    approval = entry.approval
    if approval is None:
        return None
    return ApprovalRequirement(
        frozenset(approval.from_), approval.count, approval.within, approval.otherwise == "allow"
    )


def _is_observed(*entries: Entry) -> bool:
    return next((entry.mode for entry in entries if entry.mode is not None), None) == "observe"


def _reads_time(reads: frozenset[str]) -> bool:
    return any(f"{read}.".startswith(("now.", "session.elapsed.")) for read in reads)


def _value_key(expression: Expression, digest: Callable[[str], str]) -> Callable[[Attempt], str]:
    def key(attempt: Attempt) -> str:
        return digest(json.dumps(expression(attempt.activation), sort_keys=True, default=str))

    return key


def _tool_key(attempt: Attempt) -> str:
    return attempt.full_name


def _target_key(digest: Callable[[str], str]) -> Callable[[Attempt], str]:
    def key(attempt: Attempt) -> str:
        targets = sorted(set(attempt.targets))
        return digest(json.dumps([attempt.full_name, targets])) if targets else attempt.fingerprint

    return key
