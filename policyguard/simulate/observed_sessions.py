"""Recorded sessions, and what their outcomes teach: a fold over recordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from policyguard.compiler import CompiledPolicy
from policyguard.guard.replay import ReplayGuard, ReplaySession
from policyguard.learned.constraint_set import CALL_KEY, ConstraintSet
from policyguard.learned.learn_settings import LearnSettings
from policyguard.model.constraint import Observation
from policyguard.model.event import (
    Admitted,
    Completed,
    Event,
    Refused,
    SessionEnded,
    SessionStarted,
)
from policyguard.simulate.jobs.job import Job, JobInputs, load_inputs
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.observations import Ended, Learned, Observations, Place, Started, Step
from policyguard.simulate.sessions.trace_player import IDLE_LINES, PROGRESS_INTERVAL
from policyguard.traces import Reader, Skipped, TraceFile
from policyguard.traces.formats.native import FORMAT
from policyguard.traces.session_trees import SessionTree


def name_owner(event: Event, project: str) -> SessionStarted:
    """Return the start of a session that begins with an event, on its own and in a project."""
    started = (
        event if isinstance(event, SessionStarted) else SessionStarted(event.session, event.at)
    )
    return replace(started, parent="", project=started.project or project)


def apply_event(session: ReplaySession, event: Event) -> None:
    """Apply a recorded event. Every recorded call counts as run, whatever the policy says."""
    match event:
        case SessionStarted() | Refused():
            pass  # what was refused has not run
        case Admitted():
            session.admit(event, state_changing=False)
        case Completed():
            session.record(event)
        case _:
            session.apply(event)


class ForwardedObservations(ConstraintSet, kw_only=True, eq=False):
    """A set that passes on what it is taught, and learns nothing."""

    on_observation: Callable[[Observation, str, int | None], None]

    def learn(
        self,
        observation: Observation,
        settings: LearnSettings,
        session: str,
        call: str,
        at: int | None,
    ) -> str:
        """Pass on what one outcome teaches, with its call and time."""
        self.on_observation(observation, call, at)
        return ""


class _OpenSession(msgspec.Struct, eq=False):
    """A session, and the keys of its failures. `last_line` is that of its latest event.

    `is_linked`: it started under a parent or from a source, so its shard is theirs.
    """

    started: SessionStarted
    replay: ReplaySession
    last_line: int
    is_linked: bool
    failed_keys: set[tuple[str, str]] = set()

    def goes_on(self, event: Event, line: int) -> bool:
        """Whether an event is of this session, and not of another with its id.

        One that a second start links would move to another shard.
        """
        is_moved = _is_linked(event) and not self.is_linked
        return line - self.last_line <= IDLE_LINES and not is_moved


def _is_linked(event: Event) -> bool:
    return isinstance(event, SessionStarted) and bool(event.parent or event.source)


class ObservedSessions:
    """A fold over what outcomes teach, which does not depend on what was learned before.

    Each session has a guard of its own. What it teaches goes to `learned` at once, or else is kept:
    then successes are kept, too, that may concern failures of other sessions.
    """

    def __init__(
        self,
        compiled: CompiledPolicy,
        project: str,
        shard: LineShard,
        on_progress: Callable[[], None],
        add: Callable[[Step], None] | None = None,
        learned: ConstraintSet | None = None,
    ) -> None:
        self._compiled = compiled
        self._project = project
        self._shard = shard
        self._on_progress = on_progress
        self._observations = Observations()
        self._add = add or self._observations.add
        self._others_learn = learned is None
        bounds = compiled.evaluator.bounds
        self._forwarded = ForwardedObservations(
            max_constraints=bounds.constraints,
            max_evidence=bounds.evidence,
            scope_counts={} if learned is None else learned.scope_counts,
            known_calls=set() if learned is None else learned.known_calls,
            on_observation=self._observe,
        )
        self._scopes = {entry.name: entry.scope for entry in compiled.learning.values()}
        self._open: dict[str, _OpenSession] = {}
        self._session: _OpenSession
        self._place: Place

    @property
    def events(self) -> int:
        """The number of events read."""
        return self._observations.events

    def add(
        self, trace: TraceFile, order: tuple[int, int] | None = None, *, whole: bool = False
    ) -> None:
        """Observe the sessions of a trace."""
        file, member = order or (0, 0)
        self._shard.begin(whole=whole)
        shard = None if trace.format != FORMAT or self._shard.is_whole else self._shard
        self._open.clear()
        if self._others_learn:
            self._forwarded.known_calls.clear()
        swept = IDLE_LINES
        for count, item in enumerate(trace, 1):
            line = count if shard is None else shard.line
            self._place = file, member, line
            if count % PROGRESS_INTERVAL == 0:
                self._on_progress()
                if line > swept:
                    swept = line + IDLE_LINES
                    self._drop_idle(line)
            if not isinstance(item, Skipped):
                self._observations.events += 1
                self._apply(item, line)
            elif shard is None or item.line is not None or shard.index == 0:
                self._observations.skip(self._place, item)

    def add_tree(self, reader: Reader, files: Sequence[Path], tree: SessionTree) -> None:
        """Observe the files of a session tree one by one: sub-agents learn by themselves."""
        for index in tree.indices:
            for member, trace in enumerate(reader.iter_files(files[index])):
                self.add(trace, (index, member), whole=True)

    def stop(self) -> Observations:
        """Return what was observed."""
        return self._observations

    def _apply(self, event: Event, line: int) -> None:
        session = self._open.get(event.session)
        if session is None or not session.goes_on(event, line):
            session = self._start_session(event)
        session.last_line = line
        self._session = session
        apply_event(session.replay, event)
        if isinstance(event, SessionEnded):
            del self._open[event.session]
            if session.failed_keys:
                self._add(Ended(self._place, event.session))

    def _start_session(self, event: Event) -> _OpenSession:
        guard = ReplayGuard(
            self._compiled,
            observe=True,
            constraint_set=self._forwarded,
            others_learn=self._others_learn,
        )
        started = name_owner(event, self._project)
        replay = guard.start_session(started)
        session = _OpenSession(started, replay, self._place[2], _is_linked(event))
        self._open[event.session] = session
        self._add(Started(self._place, event.session))
        return session

    def _observe(self, observation: Observation, call: str, at: int | None) -> None:
        """Add what an outcome teaches, unless it is a success that refutes nothing."""
        session = self._session
        scope = self._scopes[observation.learn]
        is_own = scope == "session" or not (scope == "global" or getattr(session.started, scope))
        step = Learned(self._place, session.replay.id, call, at, is_own, observation)
        if not observation.ok:
            session.failed_keys.update(step.keys)
            if self._others_learn:
                self._forwarded.known_calls.add(observation.key.removeprefix(CALL_KEY))
        elif scope == "session" and session.failed_keys.isdisjoint(step.keys):
            return
        self._add(step)

    def _drop_idle(self, line: int) -> None:
        """Forget sessions without an event for so long that a later one begins another."""
        for id_, session in [*self._open.items()]:
            if line - session.last_line > IDLE_LINES:
                del self._open[id_]


def start_observing(
    project: str,
    job: Job,
    inputs: JobInputs | None,
    shard: LineShard,
    on_progress: Callable[[], None],
) -> ObservedSessions:
    """Start to observe the sessions of a shard; those without a project are of `project`."""
    policy = (inputs or load_inputs(job)).policy
    return ObservedSessions(policy, project, shard, on_progress)
