"""Build plans: the entries of a checked policy that apply to a kind of call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

from msgspec.structs import replace

from policyguard.compiler.build.cases import CaseBuilder
from policyguard.compiler.build.entry_paths import Path
from policyguard.compiler.build.exceptions import build_exceptions
from policyguard.compiler.build.expressions import Expressions, reads_field, rule_reads
from policyguard.compiler.build.limits import (
    LIMIT_KINDS,
    LimitBuilder,
    build_refusals,
    is_observed,
    thresholds,
)
from policyguard.compiler.build.marks import MarkBuilder
from policyguard.compiler.build.messages import build_message, build_redactor
from policyguard.compiler.build.read_classes import find_read_classes
from policyguard.compiler.build.selectors.command_rules import CommandRules
from policyguard.compiler.build.selectors.content_selectors import (
    ContentSelectors,
    selects_contents,
)
from policyguard.compiler.build.selectors.selector import (
    compile_class_matcher,
    compile_selector,
    compile_selectors,
    compile_tool_glob,
    tool_glob_specificity,
)
from policyguard.compiler.build.state_changing import build_state_changing, reads_kind_only
from policyguard.evaluator.approvals import ApprovalRequirement
from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.cases import CompiledCase
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.escalation import Escalation
from policyguard.evaluator.plan import ClassCandidates, ClassOption, Plan
from policyguard.evaluator.result_rules import CompiledResultRule, ResultRules
from policyguard.evaluator.rule import CompiledRule, RuleSet
from policyguard.model.amounts import SCALE
from policyguard.model.limits import Budget as BudgetEntry
from policyguard.model.policy import Policy
from policyguard.model.policy import ResultRule as ResultRuleEntry
from policyguard.model.policy import Rule as RuleEntry


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
        self.exceptions = build_exceptions(policy, expressions)
        self._contents = ContentSelectors(policy, expressions, self.redact)
        self._marks = MarkBuilder(policy, expressions, self._contents, digest)
        self.marks = self._marks.marks
        limit_builder = LimitBuilder(policy, expressions, digest)
        self._limits = {
            level: {
                kind: limit_builder.build(level, kind, limits)
                for kind in LIMIT_KINDS
                if getattr(limits, kind) is not None
            }
            for level, limits in policy.limits.items()
        }
        self._refusals = {
            level: build_refusals(level, limits)
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
        self._case_builder = CaseBuilder(policy, expressions, self._contents, self.redact)
        self._rules = [
            (compile_selectors(entry), compile_selector(entry.agents), self._build_rule(entry))
            for entry in policy.rules
        ]
        self._case_sets = {
            f"rules/{entry.id}": self._case_builder.build(entry)
            for entry in policy.rules
            if entry.cases
        }
        self._with_cases = cache(_with_cases)
        self._command_rules = CommandRules(policy.rules, expressions)
        self._result_rules = [
            (
                compile_selectors(entry),
                compile_selector(entry.agents),
                self._build_result_rule(entry),
            )
            for entry in policy.result_rules
        ]
        self._class_matchers = [
            (
                entry,
                compile_class_matcher(entry),
                self._contents.combine(
                    entry, expressions.get("classify", "classes", index, "when")
                ),
            )
            for index, entry in enumerate(policy.classify.classes)
        ]
        self._read_classes = find_read_classes(policy, expressions)
        # Many tools share their rules, and compiling a prefilter is the slowest step.
        self._cached_rules = lru_cache(policy.bounds.plans)(self._build_rules)
        self._state_changing = build_state_changing(policy, expressions)
        self._kind_only = reads_kind_only(expressions)

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
                    chosen
                    for selected, agents, rule in self._rules
                    if selected(tool, server, alias, classes)
                    and agents(agent)
                    and (chosen := self._choose_cases(rule, tool, server, agent, alias, classes))
                )
            ),
            result_rules=tuple(
                rule
                for selected, agents, rule in self._result_rules
                if selected(tool, server, alias, classes) and agents(agent)
            ),
            state_changing=self._state_changing(classes),
            kind_only=self._kind_only,
            refusals=next(refusals, None),
            timeout=timeout,
            timeout_by=timeout_by,
            marks=self._marks.select(tool, server, agent, classes, alias) if self.marks else None,
        )

    def _choose_cases(
        self,
        rule: CompiledRule,
        tool: str,
        server: str,
        agent: str,
        alias: str,
        classes: tuple[str, ...],
    ) -> CompiledRule | None:
        """Return a rule with the cases that such calls may match; None if there are none."""
        cases = self._case_sets.get(rule.id)
        if cases is None:
            return rule
        chosen = cases.choose(tool, server, agent, alias, classes)
        return self._with_cases(rule, chosen) if chosen else None

    def refusal_limit_ids(self) -> tuple[str, ...]:
        """Return the ids of all `refusals` limits."""
        return tuple(limit.id for limit in self._refusals.values() if limit is not None)

    def result_rules(self) -> ResultRules | None:
        """Return what the result rules share; None if there are none."""
        if not self._result_rules:
            return None
        return ResultRules(
            tuple(rule for _, _, rule in self._result_rules),
            self._expressions.patterns.select_redactor,
            self._policy.bounds.result_chars,
        )

    def approvals(self) -> dict[str, ApprovalRequirement]:
        """Return the approval requirement of each rule that has one."""
        found = {rule.id: rule.approval for _, _, rule in self._rules if rule.approval is not None}
        of_cases = {
            case: found[rule]
            for rule, cases in self._case_sets.items()
            if rule in found
            for case in cases.ids
        }
        return found | of_cases

    def _find_timeout(self, levels: list[str]) -> tuple[int | None, str]:
        """Return the timeout of a call, and the id of the limit that sets it."""
        for level in levels:
            limits = self._policy.limits.get(level)
            if limits is not None and limits.timeout is not None:
                if limits.timeout == "none" or is_observed(limits):
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

    def _build_budget(self, entry: BudgetEntry) -> CompiledBudget:
        path: Path = ("budgets", entry.id)
        kind, limit = next(
            (kind, getattr(entry, kind))
            for kind in (
                "calls",
                "tokens",
                "cost",
                "time",
                "concurrent",
                "model_calls",
                "sum",
                "distinct",
            )
            if getattr(entry, kind) is not None
        )
        if kind in ("sum", "distinct"):
            limit = entry.max or 0
        when = self._expressions.reads(*path, "when")
        total = self._expressions.reads(*path, "sum") | self._expressions.reads(*path, "distinct")
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
            selects=self._contents.compile(entry),
            when=self._expressions.get(*path, "when"),
            when_post_paid=reads_field(when, "outcome"),
            sum=self._expressions.get(*path, "sum"),
            distinct=self._expressions.get(*path, "distinct"),
            post_paid=kind in ("tokens", "cost", "model_calls")
            or reads_field(when | total, "outcome"),
            is_owned_by=compile_selector(entry.agents),
            selective=any((entry.tools, entry.servers, entry.classes, entry.when, entry.per.keys))
            or selects_contents(entry),
            escalation=Escalation(
                entry.effect,
                **{
                    name: None if amount is None else round(amount * unit)
                    for name, amount in thresholds(entry).items()
                },
            ),
            reserve=round((entry.reserve or 0) * SCALE),
            extend=None if entry.extend is None else round(entry.extend * unit),
            message=build_message(entry.message, self.redact),
            instead=build_message(entry.instead, self.redact),
            observe=is_observed(entry),
            reads_time=entry.within is not None or self._reads_time(when | total),
            digest=self._digest,
            max_charges=self._policy.bounds.window_entries,
            max_keys=self._policy.bounds.budget_keys,
            exceptions=self.exceptions,
        )

    def _build_rule(self, entry: RuleEntry) -> CompiledRule:
        path: Path = ("rules", entry.id)
        return CompiledRule(
            id=f"rules/{entry.id}",
            selects=self._contents.compile(entry),
            doubts=self._contents.compile_doubts(entry, path),
            when=self._expressions.get(*path, "when"),
            unless=self._expressions.get(*path, "unless"),
            effect=entry.effect,
            on_error=entry.on_error,
            message=build_message(entry.message, self.redact),
            instead=build_message(entry.instead, self.redact),
            observe=is_observed(entry),
            reads_time=self._reads_time(rule_reads(self._expressions, entry)),
            approval=_build_approval(entry),
        )

    def _reads_time(self, reads: frozenset[str]) -> bool:
        """Return whether expressions read the time, or a mark that expires."""
        timed = [f"mark.{name}" for name, mark in self.marks.items() if mark.within is not None]
        return any(reads_field(reads, field) for field in ("now", "session.elapsed", *timed))

    def _build_result_rule(self, entry: ResultRuleEntry) -> CompiledResultRule:
        path: Path = ("result_rules", entry.id)
        return CompiledResultRule(
            id=f"result_rules/{entry.id}",
            finds=() if entry.finds is None else entry.finds.items,
            when=self._expressions.get(*path, "when"),
            unless=self._expressions.get(*path, "unless"),
            effect=entry.effect,
            keep=entry.keep or 0,
            message=build_message(entry.message, self.redact),
            observe=is_observed(entry),
            reads_time=self._reads_time(
                self._expressions.reads(*path, "when") | self._expressions.reads(*path, "unless")
            ),
        )

    def _build_rules(self, rules: tuple[CompiledRule, ...]) -> RuleSet:
        rule_set = RuleSet(rules)
        ids = [rule.id for rule in rules]
        rule_set.compile_prefilter = lambda: self._command_rules.prefilter(ids)
        return rule_set


def _with_cases(rule: CompiledRule, cases: tuple[CompiledCase, ...]) -> CompiledRule:
    return replace(rule, cases=cases)


def _build_approval(entry: RuleEntry) -> ApprovalRequirement | None:
    approval = entry.approval
    if approval is None:
        return None
    return ApprovalRequirement(
        frozenset(approval.from_),
        approval.count,
        approval.within,
        approval.otherwise == "allow",
        frozenset(approval.remember),
    )
