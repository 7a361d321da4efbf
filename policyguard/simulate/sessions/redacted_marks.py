"""Which entries depend on which marks, and which marks redacted data leaves undecided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from policyguard.compiler.build.entry_paths import mark_events
from policyguard.compiler.build.expressions import Expressions, reads_field
from policyguard.compiler.build.selectors.content_selectors import CONTENT_FIELDS
from policyguard.evaluator.plan import Plan
from policyguard.model.policy import Policy


class Reach(NamedTuple):
    """The entries that depend on uncertain marks: of the `run`, and of its agent and project."""

    run: frozenset[str] = frozenset()
    agent: frozenset[str] = frozenset()
    project: frozenset[str] = frozenset()


class MarkDependencies:
    """The marks that entries depend on, also by other marks.

    `entry_reads` are the fields that each entry's expressions read.
    """

    def __init__(
        self,
        policy: Policy,
        expressions: Expressions,
        entry_reads: Mapping[str, frozenset[str]],
    ) -> None:
        self._own_reads = _mark_reads(policy, expressions)
        self._scopes = {mark.id: mark.per for mark in policy.marks}
        self._is_keyed = {mark.id: mark.is_keyed for mark in policy.marks}
        self._used = {entry: self._find_used(reads) for entry, reads in entry_reads.items()}
        shared = frozenset[str]().union(
            *(self._find_used(program.reads) for path, program in expressions if _is_shared(path))
            if self._own_reads
            else ()
        )
        everything = frozenset((*entry_reads, "learn", "radius"))
        self._readers = {
            mark: everything
            if mark in shared
            else frozenset(entry for entry, used in self._used.items() if mark in used)
            for mark in self._own_reads
        }

    def expand(self, entry: str, reads: frozenset[str]) -> frozenset[str]:
        """Return what an entry reads, with what the marks depend on that it reads."""
        return reads.union(*(self._own_reads[mark] for mark in self._used.get(entry, ())))

    def readers(self, marks: Iterable[str]) -> frozenset[str]:
        """Return the entries that depend on marks."""
        return frozenset[str]().union(*(self._readers.get(mark, frozenset()) for mark in marks))

    def reach(self, marks: Set[str]) -> Reach:
        """Return the entries that depend on marks, by the sessions in which they do."""
        agent, project = (
            self.readers(mark for mark in marks if self._scopes.get(mark) == scope)
            for scope in ("agent", "project")
        )
        return Reach(self.readers(marks), agent, project)

    def reading(self, fields: Iterable[str]) -> set[str]:
        """Return the marks that one of these fields decides."""
        names = [*fields]
        return {
            mark
            for mark, reads in self._own_reads.items()
            if any(reads_field(reads, name) for name in names)
        }

    def keyed(self, marks: Iterable[str]) -> set[str]:
        """Return those of the marks that have keys: their fingerprints differ between stores."""
        return {mark for mark in marks if self._is_keyed.get(mark, False)}

    def undecided(self, plans: tuple[Plan, ...], kept: frozenset[str]) -> set[str]:
        """Return the marks that a call may have set or cleared, without its arguments.

        `kept` are the fields of `call` that are known; of several `plans` one is the call's.
        """
        by_plan = [
            set() if events is None else {one.mark.name for one in events.setting + events.clearing}
            for events in (plan.marks for plan in plans)
        ]
        found = set[str]().union(*by_plan)
        certain = found.intersection(*by_plan) if len(plans) == 1 else set()
        return {
            mark
            for mark in found
            if mark not in certain
            or any(
                read.partition(".")[0] == "call" and ".".join(read.split(".")[:2]) not in kept
                for read in self._own_reads[mark]
            )
        }

    def _find_used(self, reads: frozenset[str]) -> frozenset[str]:
        used: set[str] = set()
        pending = [reads]
        while pending:
            read = pending.pop()
            new = {mark for mark in self._own_reads if reads_field(read, f"mark.{mark}")} - used
            used |= new
            pending += [self._own_reads[mark] for mark in new]
        return frozenset(used)


def _is_shared(path: tuple[str | int, ...]) -> bool:
    """Whether an expression decides on more than one entry."""
    return path[0] not in ("marks", "rules", "budgets", "limits")


def _mark_reads(policy: Policy, expressions: Expressions) -> dict[str, frozenset[str]]:
    """Return the fields that the events of each mark read."""
    found = {mark.id: expressions.reads("marks", mark.id, "key") for mark in policy.marks}
    for mark, _, event, path in mark_events(policy):
        found[mark.id] |= frozenset(
            field for key, field in CONTENT_FIELDS.items() if getattr(event, key) is not None
        ).union(*(expressions.reads(*path, key) for key in ("when", "unless", "key")))
    return found
