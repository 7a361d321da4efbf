"""A policy in a replay, with its guards."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.entry_paths import learn_id
from policyguard.guard.replay import ReplayGuard
from policyguard.model.event import SessionStarted
from policyguard.report.replay.figures import PolicyFigures
from policyguard.simulate.sessions.redacted import PartialEvaluator
from policyguard.simulate.sessions.session_replay import SessionReplay
from policyguard.simulate.sessions.uncertainty import UncertainEntries, Uncertainty

_ISOLATED_SCOPES = frozenset({"turn", "session"})


class ReplayedPolicy:
    """A policy that a recording is replayed under.

    Unless its entries make sessions depend on each other, each session tree gets its own guard, so
    that no result depends on which other sessions are replayed.
    """

    def __init__(self, compiled: CompiledPolicy, *, observe: bool) -> None:
        self._compiled = compiled
        self._observe = observe
        self._shared_guard = self._make_guard() if find_shared_entries(compiled) else None
        self._uncertain_entries: defaultdict[tuple[str, str], UncertainEntries] = defaultdict(
            UncertainEntries
        )
        self._default_tags = {
            name: list(tag.default) if isinstance(tag.default, tuple) else tag.default
            for name, tag in compiled.policy.tags.items()
            if tag.default is not None
        }
        evaluator = compiled.evaluator
        mode = "observe" if observe or evaluator.observe_only else "enforce"
        self.policy = PolicyFigures(evaluator.name, evaluator.digest, mode)

    def start_session(self, started: SessionStarted, parent: SessionReplay | None) -> SessionReplay:
        """Start a session, as a child of `parent` if that is known."""
        guard = self._shared_guard or (parent.guard if parent is not None else self._make_guard())
        missing_tags = ""
        if self._compiled.policy.tags:
            declared = self._compiled.policy.tags
            known = {name: value for name, value in started.tags.items() if name in declared}
            tags = {**self._default_tags, **known}
            try:
                tags = self._compiled.evaluator.check_tags(tags)
            except ValueError as error:
                missing_tags = str(error)
            started = msgspec.structs.replace(started, tags=tags)
        run = UncertainEntries() if parent is None else parent.uncertainty.run
        agent, project = (
            self._uncertain_entries[scope, name] if name else UncertainEntries()
            for scope, name in (("agent", started.agent), ("project", started.project))
        )
        uncertainty = Uncertainty(run, agent, project)
        return SessionReplay(guard, started, self._get_partial_evaluator, missing_tags, uncertainty)

    def _make_guard(self) -> ReplayGuard:
        return ReplayGuard(self._compiled, observe=self._observe)

    @cached_property
    def _partial_evaluator(self) -> PartialEvaluator:
        return PartialEvaluator(self._compiled)

    def _get_partial_evaluator(self) -> PartialEvaluator:
        return self._partial_evaluator


def find_shared_entries(compiled: CompiledPolicy) -> tuple[str, ...]:
    """Return the ids of entries through which one session's calls affect another's.

    These are budgets, marks and learning with a scope of agent, user, project or global. Without
    any, each session can be replayed on its own, together with its sub-agents.
    """
    budgets = [
        f"budgets/{budget.id}"
        for budget in compiled.policy.budgets
        if budget.per.scope not in _ISOLATED_SCOPES
    ]
    learned = [
        learn_id(entry.name)
        for entry in compiled.learning.values()
        if entry.scope not in _ISOLATED_SCOPES
    ]
    return (*budgets, *find_shared_marks(compiled), *learned)


def find_shared_marks(compiled: CompiledPolicy) -> tuple[str, ...]:
    """Return the ids of the marks that sessions share."""
    return tuple(
        f"marks/{mark.id}" for mark in compiled.policy.marks if mark.per not in _ISOLATED_SCOPES
    )
