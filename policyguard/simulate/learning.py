"""Constraints from recorded failures, to be reviewed and imported into a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from msgspec.structs import replace

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.expressions import reads_field
from policyguard.evaluator.marks.mark_tables import UNNAMED
from policyguard.guard.learning.learner import session_scope
from policyguard.guard.replay import ReplayGuard, ReplaySession
from policyguard.learned.constraint_set import ConstraintSet
from policyguard.model.constraint import Constraint, Observation
from policyguard.model.event import SessionEnded
from policyguard.simulate.jobs.job import (
    ONE_PROCESS,
    Executor,
    FoldWorker,
    Job,
    JobInputs,
    OneProcess,
    ProgressCallback,
    StoppedError,
    file_size,
)
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.observations import Ended, Learned, Place, Started, Step
from policyguard.simulate.observed_sessions import (
    ObservedSessions,
    apply_event,
    name_owner,
    start_observing,
)
from policyguard.simulate.replay import use_replay_key
from policyguard.simulate.sessions.replayed_policy import find_shared_marks
from policyguard.simulate.sessions.trace_player import PROGRESS_INTERVAL
from policyguard.traces import Reader, Skipped, TraceFile
from policyguard.traces.convert import RenamedSession, convert_traces, unused_id
from policyguard.traces.session_trees import SessionTree

_ORDERED_FIELDS = ("call.session", "session.id", "session.progress")
"""What expressions may read that depends on the sessions before: an id that is used already gets a
number, and progress counts what is banned."""


def learn_constraints(
    job: Job,
    inputs: JobInputs,
    on_progress: ProgressCallback = lambda *_: None,
    executor: Executor = ONE_PROCESS,
    *,
    project: str = "",
    on_skipped: Callable[[Skipped], None] = lambda item: None,
) -> tuple[Constraint, ...]:
    """Return what a policy would have learned from recorded calls and their results.

    `job.key` is that of the fingerprints of the store where the constraints are to hold. Sessions
    whose recording names no project are of `project`; without one they teach only themselves, where
    a policy learns per project. Every recorded call counts as run, whatever the policy says. The
    constraints are the same whatever the executor. Raises `WorkerError`, and `StoppedError` if
    `on_progress` does.
    """
    compiled = use_replay_key(inputs.policy, job.key)
    job = replace(job, revision=inputs.revision)
    if find_ordered_entries(inputs):
        return _learn_in_order(compiled, job, on_progress, project, on_skipped)
    learned = LearnedConstraints(compiled)
    if isinstance(executor, OneProcess):
        observing = FoldWorker(
            lambda job, inputs, shard, on_progress: ObservedSessions(
                compiled, project, shard, on_progress, learned.add, learned.constraint_set
            ),
            job,
            inputs,
            LineShard(),
            on_progress,
        )
        found, partial_ = observing.run(
            SessionTree((index,), (-1,)) for index in range(len(job.files))
        )
    else:
        found, partial_ = executor.fold(
            partial(start_observing, project), job, inputs, on_progress, narrow=True
        )
    if partial_:
        raise StoppedError
    for step in found.steps():
        learned.add(step)
    for skip in sorted(found.skipped, key=lambda skip: skip.place):
        on_skipped(skip.item)
    return learned.constraint_set.by_confirmation()


def find_ordered_entries(inputs: JobInputs) -> tuple[str, ...]:
    """Return what makes the outcomes of sessions depend on those before; then one process learns.

    Budgets do not: every recorded call counts as run, and no expression reads what is used.
    """
    compiled = inputs.policy
    reads = compiled.expressions.all_reads()
    return (
        *find_shared_marks(compiled),
        *[f"`{field}`" for field in _ORDERED_FIELDS if reads_field(reads, field)],
    )


class LearnedConstraints:
    """What steps teach, each as soon as it is added, in the order of the recordings.

    Sessions get the ids that `convert_traces` gives them.
    """

    def __init__(self, compiled: CompiledPolicy) -> None:
        bounds = compiled.evaluator.bounds
        self.constraint_set = ConstraintSet(
            max_constraints=bounds.constraints, max_evidence=bounds.evidence
        )
        self._settings = {entry.name: entry.settings for entry in compiled.learning.values()}
        self._trace: tuple[int, int] | None = None
        self._used_ids: dict[str, int] = {}
        self._new_ids: dict[str, str] = {}

    def add(self, step: Step) -> None:
        """Learn from one step."""
        self._begin_trace(step.place)
        new_id = self._new_ids.get(step.session)
        match step:
            case Started() if new_id is None:
                self._new_ids[step.session] = unused_id(step.session, self._used_ids)
            case Started() | Ended():
                self.constraint_set.remove_scope(session_scope(new_id or step.session))
            case Learned():
                # A success of a session without failures needs no new id.
                self._learn(step, step.session if new_id is None else new_id)

    def _begin_trace(self, place: Place) -> None:
        if self._trace != place[:2]:
            self._trace = place[:2]
            self._new_ids.clear()

    def _learn(self, step: Learned, new_id: str) -> None:
        observation = step.observation
        if step.is_own and new_id != step.session:
            observation = replace(
                observation, scope=_rename_owner(observation, step.session, new_id)
            )
        settings = self._settings[observation.learn]
        self.constraint_set.learn(observation, settings, new_id, step.call, step.at)


def _rename_owner(observation: Observation, old_id: str, new_id: str) -> str:
    """Return a session's own scope with another id; a key of the scope may follow the id."""
    kind, _, owner = observation.scope.partition(":")
    mark = "" if kind == "session" else UNNAMED
    return f"{kind}:{mark}{new_id}{owner[len(mark) + len(old_id) :]}"


def _learn_in_order(
    compiled: CompiledPolicy,
    job: Job,
    on_progress: ProgressCallback,
    project: str,
    on_skipped: Callable[[Skipped], None],
) -> tuple[Constraint, ...]:
    """Learn with one guard for all sessions, as they were recorded."""
    guard = ReplayGuard(compiled, observe=True)
    sessions: dict[str, ReplaySession] = {}
    for count, item in enumerate(convert_traces(_read_in_order(job, on_progress)), 1):
        if count % PROGRESS_INTERVAL == 0:
            on_progress(0, PROGRESS_INTERVAL)
        if isinstance(item, RenamedSession):
            continue
        if isinstance(item, Skipped):
            on_skipped(item)
            continue
        session = sessions.get(item.session)
        if session is None or session.closed:
            session = sessions[item.session] = guard.start_session(name_owner(item, project))
        apply_event(session, item)
        if isinstance(item, SessionEnded):
            del sessions[item.session]
    return guard.constraints()


def _read_in_order(job: Job, on_progress: ProgressCallback) -> Iterator[TraceFile]:
    reader = Reader(rows=job.read_rows())
    for file in job.files:
        yield from reader.iter_files(file)
        on_progress(file_size(file), 0)
