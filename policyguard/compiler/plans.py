"""From a checked policy to plans: what applies to a kind of call, looked up once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from policyguard.compiler.expressions import Expressions, Path, reads_any
from policyguard.compiler.placeholders import template
from policyguard.compiler.selectors import glob, has_words, literal_prefix, selects
from policyguard.evaluator.account import UNIT
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budget import Budget
from policyguard.evaluator.cycle import Cycle
from policyguard.evaluator.failures import Failures
from policyguard.evaluator.limits import Limit
from policyguard.evaluator.outage import Outage
from policyguard.evaluator.plan import Candidates, Plan
from policyguard.evaluator.polling import Polling
from policyguard.evaluator.repeat import Repeat
from policyguard.evaluator.rule import Rule
from policyguard.evaluator.view import Expression, View
from policyguard.evaluator.wording import Template
from policyguard.model.entry import Entry
from policyguard.model.limits import Budget as BudgetEntry
from policyguard.model.limits import LimitLevel, RepeatLimit
from policyguard.model.policy import ClassEntry, Policy
from policyguard.model.policy import Rule as RuleEntry

KINDS = ("repeat", "cycle", "failures", "outage", "polling")


class Planner:
    """Makes the plan of a kind of call: its class, limits, budgets and rules.

    `digest` stands for a value wherever one is kept: what a call says goes into no state.
    """

    def __init__(
        self, policy: Policy, expressions: Expressions, digest: Callable[[str], str]
    ) -> None:
        self._digest = digest
        self._policy = policy
        self._expressions = expressions
        self._limits = {
            level: {
                kind: self._limit(level, kind, limits)
                for kind in KINDS
                if getattr(limits, kind) is not None
            }
            for level, limits in policy.limits.items()
        }
        self._globs = sorted(
            ((level, glob(level[6:])) for level in policy.limits if level.startswith("tools:")),
            key=lambda item: -literal_prefix(item[0][6:]),
        )
        self.budgets = {f"budgets/{entry.id}": self._budget(entry) for entry in policy.budgets}
        self._drawn = [
            (selects(entry.tools), selects(entry.classes), self.budgets[f"budgets/{entry.id}"])
            for entry in policy.budgets
        ]
        self._rules = [
            (selects(entry.tools), selects(entry.classes), selects(entry.agents), self._rule(entry))
            for entry in policy.rules
        ]
        self._classes = [
            (entry, self._named(entry), expressions.get("classify", "classes", number, "when"))
            for number, entry in enumerate(policy.classify.classes)
        ]
        self._changing = self._state_changing()

    def candidates(self, tool: str, server: str) -> Candidates:
        """The classes that calls of a tool may have, first match first."""
        options: list[tuple[str, Expression | None]] = []
        for entry, named, when in self._classes:
            if named(tool):
                options.append((entry.class_, when))
                if when is None:
                    break
        return Candidates(tuple(options))

    def plan(self, tool: str, server: str, agent: str, class_: str) -> Plan:
        """What the policy has to say on calls of a tool in a class, made by an agent."""
        changing = self._changing
        return Plan(
            tool=tool,
            class_=class_,
            limits=self._limits_for(tool, class_),
            budgets=tuple(
                budget for tools, classes, budget in self._drawn if tools(tool) and classes(class_)
            ),
            rules=tuple(
                rule
                for tools, classes, agents, rule in self._rules
                if tools(tool) and classes(class_) and agents(agent)
            ),
            changing=changing(class_) if isinstance(changing, _ByClass) else changing,
        )

    def _limits_for(self, tool: str, class_: str) -> tuple[Limit, ...]:
        """The limit of each kind at the most specific level: tool, then class, then default."""
        levels = [level for level, matches in self._globs if matches(tool)]
        levels += [f"classes:{class_}", "default"]
        chosen: dict[str, Limit] = {}
        for kind in KINDS:
            for level in levels:
                if kind in self._limits.get(level, ()):
                    limit = self._limits[level][kind]
                    if limit is not None:
                        chosen[kind] = limit
                    break
        if "polling" in chosen:  # to poll is to repeat: polling's own rule takes over
            chosen.pop("repeat", None)
            chosen.pop("cycle", None)
        return tuple(chosen.values())

    def _limit(self, level: str, kind: str, limits: LimitLevel) -> Limit | None:
        """One limit, compiled; None where it is switched off."""
        id_ = f"limits/{level}/{kind}"
        entry = getattr(limits, kind)
        if entry == "none":
            return None
        common = {
            "effect": entry.effect,
            "per_turn": entry.per == "turn",
            "observe": _observed(entry, limits),
        }
        if kind == "repeat":
            return self._repeat(id_, level, entry, common)
        if kind == "cycle":
            return Cycle(id_, longest=entry.longest, max=entry.max, **common)
        if kind == "failures":
            return Failures(
                id_,
                max=entry.max,
                same_error=entry.same == "error",
                signature=entry.signature or "",
                **common,
            )
        if kind == "outage":
            return Outage(
                id_,
                max=entry.max,
                within=entry.within,
                cooldown=entry.cooldown,
                # A glob names tools that go down together; a class is a kind of action.
                together=level.startswith("tools:"),
                most=self._policy.bounds.window_entries,
                patience=self._policy.bounds.unreported,
                **common,
            )
        return Polling(
            id_,
            cooldown=entry.cooldown,
            unchanged=entry.unchanged,
            most=self._policy.bounds.window_entries,
            **common,
        )

    def _repeat(self, id_: str, level: str, entry: RepeatLimit, common: dict[str, Any]) -> Repeat:
        window = self._policy.bounds.window_entries if entry.window == "all" else entry.window
        path = ("limits", *level.split(":", 1), "repeat", "key")
        expression = self._expressions.get(*path)
        key: Callable[[Attempt, View], str] | None = None
        if expression is not None:
            key = _value_key(expression, self._digest)
        elif entry.same == "error":
            key = _tool_key
        elif entry.same == "target":
            key = _target_key(self._digest)
        return Repeat(
            id_,
            max=entry.max,
            window=window,
            same="key" if expression is not None else entry.same,
            key=key,
            **common,
        )

    def _budget(self, entry: BudgetEntry) -> Budget:
        path: Path = ("budgets", entry.id)
        kind, limit = next(
            (kind, getattr(entry, kind))
            for kind in ("calls", "tokens", "cost", "time", "at_once", "sum")
            if getattr(entry, kind) is not None
        )
        if kind == "sum":
            limit = entry.max or 0
        when = self._expressions.reads(*path, "when")
        total = self._expressions.reads(*path, "sum")
        return Budget(
            f"budgets/{entry.id}",
            kind=kind,
            max=limit if kind == "time" else round(limit * UNIT),
            scope=entry.per.scope,
            keys=tuple(
                expression
                for number in range(1, len(entry.per.keys) + 1)
                if (expression := self._expressions.get(*path, "per", number)) is not None
            ),
            within=entry.within,
            when=self._expressions.get(*path, "when"),
            when_post_paid=reads_any(when, "outcome"),
            sum=self._expressions.get(*path, "sum"),
            sum_post_paid=reads_any(total, "outcome"),
            agents=selects(entry.agents),
            selective=any((entry.tools, entry.classes, entry.when, entry.per.keys)),
            effect=entry.effect,
            message=message(entry.message),
            instead=message(entry.instead),
            observe=_observed(entry),
            reads_time=_reads_time(when | total),
            digest=self._digest,
            most=self._policy.bounds.window_entries,
            most_keys=self._policy.bounds.budget_keys,
        )

    def _rule(self, entry: RuleEntry) -> Rule:
        path: Path = ("rules", entry.id)
        return Rule(
            f"rules/{entry.id}",
            when=self._expressions.get(*path, "when"),
            unless=self._expressions.get(*path, "unless"),
            effect=entry.effect,
            on_error=entry.on_error,
            message=message(entry.message),
            instead=message(entry.instead),
            observe=_observed(entry),
            reads_time=_reads_time(
                self._expressions.reads(*path, "when") | self._expressions.reads(*path, "unless")
            ),
        )

    def _named(self, entry: ClassEntry) -> Callable[[str], bool]:
        """Whether a tool's name fits a class entry, its `when` aside."""
        words = has_words(entry.words) if entry.words is not None else None
        globs = [glob(item) for item in entry.tools] if entry.tools is not None else None

        def fits(tool: str) -> bool:
            if words is not None and not words(tool):
                return False
            return globs is None or any(matches(tool) for matches in globs)

        return fits

    def _state_changing(self) -> Expression | _ByClass | bool:
        changing = self._policy.classify.state_changing
        if isinstance(changing, str):
            return self._expressions.get("classify", "state_changing") or True
        # A policy that does not say what changes state must not call anything harmless.
        return True if changing is None else _ByClass(frozenset(changing))


class _ByClass:
    """Calls of these classes change state, and so may those of no class."""

    def __init__(self, classes: frozenset[str]) -> None:
        self._classes = classes

    def __call__(self, class_: str) -> bool:
        return not class_ or class_ in self._classes


def message(text: str | None) -> Template | None:
    """A message with its `{placeholders}` told apart; None where there is none."""
    return Template(template(text).parts) if text is not None else None


def _observed(*entries: Entry) -> bool:
    return next((entry.mode for entry in entries if entry.mode is not None), None) == "observe"


def _reads_time(reads: frozenset[str]) -> bool:
    return any(f"{read}.".startswith(("now.", "session.elapsed.")) for read in reads)


def _value_key(
    expression: Expression, digest: Callable[[str], str]
) -> Callable[[Attempt, View], str]:
    def key(attempt: Attempt, view: View) -> str:
        return digest(json.dumps(expression(view), sort_keys=True, default=str))

    return key


def _tool_key(attempt: Attempt, view: View) -> str:
    return attempt.tool


def _target_key(digest: Callable[[str], str]) -> Callable[[Attempt, View], str]:
    def key(attempt: Attempt, view: View) -> str:
        targets = sorted(attempt.targets)
        return digest(json.dumps([attempt.tool, targets])) if targets else attempt.fingerprint

    return key
