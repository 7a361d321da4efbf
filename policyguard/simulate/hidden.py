"""Redacted journals: what a policy can still be asked about a call, and what stays unknown.

A journal without arguments has the calls' fingerprints, one without results those of the results.
Which calls, and which results, are the same can therefore still be told (as the recording policy
told it), and so limits and most budgets can be asked. What reads the arguments cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

from policyguard.compiler import Compiled
from policyguard.compiler.expressions import Expressions
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.view import View
from policyguard.journal.redact import MARK
from policyguard.model.entry import Selecting
from policyguard.model.errors import ExpressionError
from policyguard.model.event import Admitted, Completed, Refused
from policyguard.model.limits import Limit, RepeatLimit
from policyguard.model.policy import Policy

_KNOWN = ("tool", "server", "class", "agent", "session", "batch", "tags", "hints")
"""Fields of `call` that a journal keeps whatever it does with the arguments."""
_LOOKING = ("commands", "paths", "hosts", "finds")
"""Selectors that look at the arguments."""
_RESULT = ("text", "error", "chars", "signature", "meta", "changed")
"""Fields of `outcome` that are not known where results are not kept."""
_REDACTED = re.compile(rf"(?:{MARK}[0-9a-f]{{24}}|\[\d+ lines?, \d+ characters\]|{MARK})?")
"""What a journal leaves of a text: a fingerprint, an outline, or nothing."""
_LETTERS = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")
"""Hashes and numbers are masked where errors are compared; letters are not."""


class Sight(NamedTuple):
    """What a policy can be asked about calls of one kind.

    `hidden` are the entries whose answer is not known; None stands for all of them. `changing`: it
    is known whether such a call may change state.
    """

    hidden: frozenset[str] | None
    changing: bool

    @property
    def clear(self) -> bool:
        """Whether everything can be asked."""
        return self.hidden == frozenset()

    def certain(self, entry: str) -> bool:
        """Whether what an entry has against a call would stand, whatever the arguments."""
        if self.hidden is None:
            return entry.startswith("session/")
        kind = entry.partition("/")[0]
        return {"constraints": "learn", "radius": "radius"}.get(kind, entry) not in self.hidden


class Blind:
    """A policy, asked about calls of which something was not kept.

    `results_open`: it looks into results, or tells them apart by signatures, so that those without
    a text leave it open what follows. `observed` are its entries in observe mode.
    """

    def __init__(self, compiled: Compiled) -> None:
        self._evaluator = compiled.evaluator
        self._policy = compiled.policy
        expressions = compiled.expressions
        self._hidden = frozenset(_hidden_entries(compiled.policy, expressions))
        self._hidden_learning = any(
            entry.ban == "target"
            or any((entry.parameters, entry.key, entry.scope_key, entry.count_by))
            for entry in compiled.learning.values()
        )
        self.results_open = _results_open(compiled, expressions)
        self.observed = frozenset(_observed_entries(compiled.policy))
        self._hidden_for = lru_cache(compiled.policy.bounds.plans)(self._hidden_of)

    def sight(self, event: Admitted | Refused, agent: str) -> Sight:
        """What can be told of a call."""
        class_ = self._evaluator.candidates(event.tool, event.server).fixed
        if class_ is None:
            return Sight(None, changing=False)
        plan = self._evaluator.plan(event.tool, event.server, agent, class_)
        hidden = self._hidden_for(plan, identified=bool(event.fingerprint))
        return Sight(hidden, changing=self._changes_told(plan, event, agent))

    def _hidden_of(self, plan: Plan, *, identified: bool) -> frozenset[str]:
        """The entries that cannot be asked; `identified`: the call's fingerprint was kept."""
        applying = [one.id for group in (plan.limits, plan.budgets, plan.rules) for one in group]
        hidden = self._hidden.intersection(applying)
        if not identified:
            hidden |= {limit.id for limit in plan.limits}
        if self._policy.learn is not None and (self._hidden_learning or not identified):
            hidden |= {"learn"}
        if self._policy.radius:
            hidden |= {"radius"}
        return hidden

    def _changes_told(self, plan: Plan, event: Admitted | Refused, agent: str) -> bool:
        """Whether it can be told without what is hidden: if it is not there, is it missed?"""
        if isinstance(plan.changing, bool):
            return True
        kept: Any = SimpleNamespace(
            tool=event.tool,
            server=event.server,
            class_=plan.class_,
            session=SimpleNamespace(agent=agent, id=event.session),
            batch=event.batch,
            hints=event.hints,
        )
        view = View(kept, self._evaluator.ground, None)
        view.session, view.tags, view.now = {}, {}, None
        try:
            plan.changing(view)
        except ExpressionError:
            return False
        return True


def stand_in(event: Admitted | Refused, place: int) -> Admitted | Refused:
    """The call with arguments that are the same wherever the fingerprint was."""
    told = event.fingerprint or f"the call at {place}"
    return msgspec.structs.replace(event, args={MARK: told})


def without_text(event: Completed) -> Completed | None:
    """The result with its fingerprints in place of the texts, where these were not kept.

    None where they were, or where the recording has no fingerprints.
    """
    if not event.result_fingerprint or not _REDACTED.fullmatch(event.text):
        return None
    if event.error is not None and not _REDACTED.fullmatch(event.error):
        return None
    error = event.error_fingerprint.translate(_LETTERS) if event.ok is False else None
    return msgspec.structs.replace(event, text=event.result_fingerprint, error=error)


def _hidden_entries(policy: Policy, expressions: Expressions) -> Iterator[str]:
    """The ids of entries that read something of a call that a redacted journal does not keep."""
    for rule in policy.rules:
        path = ("rules", rule.id)
        # A message may show an argument, and that is all it does: the verdict is known.
        reads = expressions.reads(*path, "when") | expressions.reads(*path, "unless")
        if not _sees(reads) or _looks(rule):
            yield f"rules/{rule.id}"
    for budget in policy.budgets:
        places: list[tuple[str | int, ...]] = [("when",), ("sum",)]
        places += [("per", number + 1) for number in range(len(budget.per.keys))]
        reads = frozenset[str]().union(
            *(expressions.reads("budgets", budget.id, *place) for place in places)
        )
        if not _sees(reads) or _looks(budget):
            yield f"budgets/{budget.id}"
    for level, limits in policy.limits.items():
        repeat = limits.repeat
        reads = expressions.reads("limits", *level.split(":", 1), "repeat", "key")
        if isinstance(repeat, RepeatLimit) and (not _sees(reads) or repeat.same == "target"):
            yield f"limits/{level}/repeat"


def _results_open(compiled: Compiled, expressions: Expressions) -> bool:
    reads = expressions.all_reads()
    if "outcome" in reads or any(f"outcome.{name}" in reads for name in _RESULT):
        return True
    return any(compiled.learning) or any(
        limits.no_progress or getattr(limits.failures, "signature", None)
        for limits in compiled.policy.limits.values()
    )


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


def _sees(reads: frozenset[str]) -> bool:
    """Whether all that is read of a call was kept, and so all that marks were made of."""
    kept = {f"call.{name}" for name in _KNOWN}
    for read in reads:
        variable, *fields = read.split(".")
        if variable == "mark" or (
            variable == "call" and (not fields or f"call.{fields[0]}" not in kept)
        ):
            return False
    return True


def _looks(entry: Selecting) -> bool:
    return any(getattr(entry, selector) is not None for selector in _LOOKING)
