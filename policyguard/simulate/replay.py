"""Events through the Guard, one after the other, and counts of what it says."""

from __future__ import annotations

import time

from policyguard.compiler import Compiled
from policyguard.guard import Guard, Session
from policyguard.model.decision import Decision, Violation
from policyguard.model.effect import Effect
from policyguard.model.event import (
    Admitted,
    Approved,
    Closed,
    Completed,
    Event,
    Refused,
    Spent,
    Started,
)
from policyguard.report.figures import (
    FaultFigures,
    Figures,
    PolicyFigures,
    RuleFigures,
    RunFigures,
    SkippedFigures,
)
from policyguard.simulate.conclude import conclude
from policyguard.simulate.labels import Labels
from policyguard.traces import Skipped, TraceFile


class Replay:
    """One replay of a policy over trace files.

    In mode `enforce` a refused call's result is not folded in, as it would never have come; in
    `observe` every call counts as it was recorded, refused or not.
    """

    def __init__(self, compiled: Compiled, *, observe: bool, labels: Labels | None) -> None:
        evaluator = compiled.evaluator
        self._begun = time.monotonic()
        self._labels = labels
        self._guard = Guard(compiled, observe=observe, clock=_no_clock)
        self._rules: dict[tuple[str, str], RuleFigures] = {}
        self._faults: dict[str, FaultFigures] = {}
        mode = "observe" if observe or evaluator.observe_only else "enforce"
        self.figures = Figures(
            policy=PolicyFigures(evaluator.name, evaluator.digest, mode),
            effects={effect.value: 0 for effect in Effect},
        )

    def add(self, trace: TraceFile) -> None:
        """Replay one file. Sessions still open at its end are closed."""
        read = _File(trace, self._guard)
        traces = self.figures.traces
        for item in trace:
            if isinstance(item, Skipped):
                traces.skipped += 1
                traces.skips.append(SkippedFigures(item.file, item.line, item.reason))
            else:
                self._event(read, item)
        if trace.format is not None:
            traces.files += 1
            traces.formats[trace.format] = traces.formats.get(trace.format, 0) + 1
        for session in read.sessions.values():
            session.close()
        self._label(read)
        self.figures.sessions += read.runs.values()
        traces.sessions += len(read.runs)

    def finish(self, *, interrupted: bool = False) -> Figures:
        """The figures, complete."""
        figures = self.figures
        figures.rules = sorted(self._rules.values(), key=lambda rule: (-rule.hits, rule.id))
        figures.faults = sorted(self._faults.values(), key=lambda fault: -fault.hits)
        if self._labels is not None:
            figures.labels.matched = self._labels.matched
            figures.labels.unmatched = self._labels.unmatched
        figures.interrupted = interrupted
        conclude(figures)
        figures.elapsed_s = time.monotonic() - self._begun
        return figures

    def _event(self, read: _File, event: Event) -> None:
        session, run = read.session(event)
        match event:
            case Started():
                pass
            case Admitted() | Refused():
                self._call(session, run, read, event)
            case Completed():
                self._result(run, event)
                session.replay(event)
            case Closed():
                if event.success is not None:
                    run.success = event.success
                session.replay(event)
                del read.sessions[event.session]
            case Approved():
                pass  # in a replay nobody answers
            case _:
                if isinstance(event, Spent) and run.first_refusal is not None:
                    run.cost_after_first_refusal += event.cost
                session.replay(event)

    def _call(
        self, session: Session, run: RunFigures, read: _File, event: Admitted | Refused
    ) -> None:
        traces = self.figures.traces
        place = run.calls
        run.calls += 1
        traces.calls += 1
        if run.first_refusal is not None:
            run.calls_after_first_refusal += 1
        if event.args is None:
            traces.skipped += 1
            reason = f"call `{event.call}` of session `{run.id}` has no arguments: cannot be judged"
            traces.skips.append(SkippedFigures(run.file, None, reason))
            return
        if event.at is None:
            traces.untimed += 1
        decision = session.replay(event)
        assert isinstance(decision, Decision)  # noqa: S101 - an attempt is answered by one
        violations = decision.violations or decision.would
        effect = max((violation.effect for violation in violations), default=Effect.ALLOW)
        self.figures.effects[effect.value] += 1
        self._count(decision, violations, read, run)
        if effect >= Effect.ASK:
            run.refused += 1
            if run.first_refusal is None:
                first = max(violations, key=lambda violation: violation.effect.strength)
                run.first_refusal = place
                run.first_rule = first.id
                run.first_tool = event.tool
                run.first_message = first.text

    def _count(
        self,
        decision: Decision,
        violations: tuple[Violation, ...],
        read: _File,
        run: RunFigures,
    ) -> None:
        for violation in violations:
            key = (violation.id, violation.effect.value)
            rule = self._rules.get(key)
            if rule is None:
                rule = self._rules[key] = RuleFigures(violation.id, violation.effect.value)
            rule.hits += 1
            if (key, id(run)) not in read.seen:
                read.seen.add((key, id(run)))
                rule.sessions += 1
        for fault in decision.errors:
            known = self._faults.setdefault(fault.id, FaultFigures(fault.id, fault.error))
            known.hits += 1

    def _result(self, run: RunFigures, event: Completed) -> None:
        errors = self.figures.traces.errors
        if event.known == "unknown":
            errors.unknown += 1
        elif event.ok is False:
            if event.known == "explicit":
                errors.explicit += 1
            else:
                errors.inferred += 1
        if run.first_refusal is not None and event.cost:
            run.cost_after_first_refusal += event.cost

    def _label(self, read: _File) -> None:
        if self._labels is None:
            return
        for run in read.runs.values():
            told = self._labels.find(run.id, run.file, alone=len(read.runs) == 1)
            if told is None:
                continue
            if run.success is not None and run.success is not told:
                self.figures.labels.disagree += 1
            run.success = told


class _File:
    """The sessions of one file while it is replayed."""

    def __init__(self, trace: TraceFile, guard: Guard) -> None:
        self._trace = trace
        self._guard = guard
        self.sessions: dict[str, Session] = {}
        self.runs: dict[str, RunFigures] = {}
        self.seen: set[tuple[tuple[str, str], int]] = set()

    def session(self, event: Event) -> tuple[Session, RunFigures]:
        """The session of an event, opened where it is new."""
        id_ = event.session
        run = self.runs.get(id_)
        if run is None:
            run = self.runs[id_] = RunFigures(id_, str(self._trace.path), self._trace.format or "")
        session = self.sessions.get(id_)
        if session is None:
            started = event if isinstance(event, Started) else Started(id_, event.at)
            session = self.sessions[id_] = self._guard.start(started, apart=True)
        return session, run


def _no_clock() -> int:
    """In a replay all times are the events'."""
    return 0
