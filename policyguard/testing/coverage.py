"""Coverage: which entries of a policy its tests have reached."""

from __future__ import annotations

from collections import Counter

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.entry_paths import learn_id, list_entry_ids
from policyguard.compiler.inputs import PACK_PREFIX
from policyguard.guard.replay import ReplayGuard
from policyguard.model.decision import Decision
from policyguard.model.event import Completed, Event, Marked
from policyguard.model.outcome import Recorded
from policyguard.report.policy_tests.results import Coverage, EntryCoverage


class CoverageRecorder:
    """Counts of how often each entry fired.

    An entry is reached by a violation (also in observe mode), a timeout by a call that has it, a
    signature and a result rule by a result that matches, a mark by what sets it, an entry of
    `blame` by a failure that it assigns, a `learn` by a violation of a constraint that it taught.
    """

    def __init__(self, compiled: CompiledPolicy) -> None:
        self._compiled = compiled
        self._paths = dict(list_entry_ids(compiled.policy))
        self._mark_paths = {f"marks/{one.id}": ("marks", one.id) for one in compiled.policy.marks}
        self._hits: Counter[str] = Counter()

    @property
    def file(self) -> str:
        """The policy's own file: the last layer.

        It identifies the policy, whatever environment its tests use.
        """
        return list(self._compiled.merged.sources)[-1]

    @property
    def ids(self) -> list[str]:
        """The ids of all entries that can fire."""
        return list(self._paths)

    def record_decision(self, decision: Decision, guard: ReplayGuard) -> None:
        """Count the entries that a decision names."""
        for violation in (*decision.violations, *decision.would):
            id_ = violation.id
            if id_.startswith("constraints/"):
                constraint = guard.find_constraint(id_.removeprefix("constraints/"))
                if constraint is not None:
                    self._hits[learn_id(constraint.learn)] += 1
            else:
                self._hits[id_] += 1
        for waiver in decision.waived:
            self._hits[waiver.exception] += 1
        if decision.timeout_by.startswith("limits/"):
            self._hits[decision.timeout_by] += 1

    def record_result(self, recorded: Recorded) -> None:
        """Count the signature of a result, and the entry that assigned the blame."""
        if recorded.outcome.signature:
            self._hits[f"signatures/{recorded.outcome.signature}"] += 1
        if recorded.outcome.blamed_by:
            self._hits[recorded.outcome.blamed_by] += 1
        for violation in (*recorded.violations, *recorded.would):
            self._hits[violation.id] += 1

    def record_event(self, event: Event) -> None:
        """Count the marks that a result or the host has set."""
        if isinstance(event, Completed | Marked):
            self._hits.update(f"marks/{change.mark}" for change in event.marks)

    def merge(self, other: CoverageRecorder) -> None:
        """Add what other tests of the same policy have reached."""
        self._hits += other._hits

    def build_coverage(self) -> Coverage:
        """Return the coverage so far. Entries of packs are left to the packs' own tests."""
        file, name = self.file, self._compiled.policy.name
        entries: list[EntryCoverage] = []
        inherited = 0
        for id_, path in {**self._paths, **self._mark_paths}.items():
            span = self._compiled.merged.span_of(path, key=True)
            if span.file.startswith(PACK_PREFIX) and not file.startswith(PACK_PREFIX):
                inherited += 1
            else:
                entries.append(EntryCoverage(id_, span.file, span.line, self._hits[id_]))
        return Coverage(policy=name, file=file, entries=tuple(entries), inherited=inherited)
