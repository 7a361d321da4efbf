"""Which entries of a policy its tests have reached, told from what guards decide."""

from __future__ import annotations

from collections import Counter

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.entry_ids import learn_id, list_entry_ids
from policyguard.compiler.inputs import PACK_PREFIX
from policyguard.guard.replay import ReplayGuard
from policyguard.model.decision import Decision
from policyguard.model.outcome import Recorded
from policyguard.report.policy_tests.results import Coverage, EntryCoverage


class CoverageRecorder:
    """Counts what fires: rules, limits, budgets, signatures, blame, and what failures have taught.

    An entry is reached when it has something against a call (also in observe mode); a timeout when
    it is a call's; a signature when a result has it; an entry of `blame` when it says whose fault a
    failure was; a `learn` when a constraint that it taught binds a call.
    """

    def __init__(self, compiled: CompiledPolicy) -> None:
        self._compiled = compiled
        self._paths = dict(list_entry_ids(compiled))
        self._hits: Counter[str] = Counter()

    @property
    def file(self) -> str:
        """The policy's own file: the last layer. What it extends comes before.

        The same for the same policy, also where tests give it another environment.
        """
        return list(self._compiled.merged.sources)[-1]

    @property
    def ids(self) -> list[str]:
        """The ids of all entries that may fire."""
        return list(self._paths)

    def record_decision(self, decision: Decision, guard: ReplayGuard) -> None:
        """Count what a decision names."""
        for violation in (*decision.violations, *decision.would):
            id_ = violation.id
            if id_.startswith("constraints/"):
                constraint = guard.find_constraint(id_.removeprefix("constraints/"))
                if constraint is not None:
                    self._hits[learn_id(constraint.learn)] += 1
            else:
                self._hits[id_] += 1
        if decision.timeout_by.startswith("limits/"):
            self._hits[decision.timeout_by] += 1

    def record_result(self, recorded: Recorded) -> None:
        """Count the signature of a result, and what said whose fault it was."""
        if recorded.outcome.signature:
            self._hits[f"signatures/{recorded.outcome.signature}"] += 1
        if recorded.outcome.blamed_by:
            self._hits[recorded.outcome.blamed_by] += 1

    def merge(self, other: CoverageRecorder) -> None:
        """Count what other tests of the same policy have reached."""
        self._hits += other._hits

    def build_coverage(self) -> Coverage:
        """What was reached so far. Entries of packs are left to the tests of the packs."""
        layered, policy = self._compiled.merged, self._compiled.policy
        own = self.file
        found, inherited = [], 0
        for id_, path in self._paths.items():
            span = layered.span_of(path, key=True)
            if span.file.startswith(PACK_PREFIX) and not own.startswith(PACK_PREFIX):
                inherited += 1
            else:
                found.append(EntryCoverage(id_, span.file, span.line, self._hits[id_]))
        return Coverage(policy=policy.name, file=own, entries=tuple(found), inherited=inherited)
