"""The runner of a test's steps."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from typing import Any

from policyguard.compiler.load import scalars
from policyguard.engines.yaml_tree import Path
from policyguard.guard import Session
from policyguard.guard.replay import ReplayGuard
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.report.policy_tests.results import Failure, Mismatch
from policyguard.testing.coverage import CoverageRecorder
from policyguard.testing.expectations import (
    compare_decision,
    compare_result,
    format_call,
    format_value,
    record_result,
)
from policyguard.testing.suite import (
    MAIN_SESSION,
    ScriptedApproval,
    SessionSpec,
    Step,
    Suite,
    Test,
    list_marks,
    parse_instant,
    parse_nanoseconds,
)

_DEFAULT_START = 1_772_798_400 * 10**9
"""The default start of a test: Friday, 6 March 2026, 12:00 UTC, within usual working hours."""


def run_steps(
    suite: Suite, test: Test, coverage: CoverageRecorder, *, keep_going: bool = False
) -> list[Failure]:
    """Run a test's steps. The first failing step ends the test, unless it is to `keep_going`."""
    runner = _StepRunner(suite, test, coverage)
    failures: list[Failure] = []
    try:
        runner.open()
    except _StepFailed as failed:
        return [runner.build_failure(failed)]
    for step in test.steps:
        try:
            runner.run_step(step)
        except _StepFailed as failed:
            failures.append(runner.build_failure(failed))
            if not keep_going:
                break
    return failures


class _StepFailed(Exception):  # noqa: N818 - a control flow signal
    """A step failed. `path` is that of the expectation; `key`: point at its key."""

    def __init__(
        self,
        path: Path,
        *mismatches: Mismatch,
        decision: Decision | None = None,
        session: Session | None = None,
        key: bool = False,
    ) -> None:
        super().__init__(mismatches)
        self.path = path
        self.mismatches = mismatches
        self.decision = decision
        self.session = session
        self.key = key


class _Clock:
    """A clock that a test sets."""

    def __init__(self, at: str | None) -> None:
        start = None if at is None else parse_instant(at)
        self.now = _DEFAULT_START if start is None else start

    def __call__(self) -> int:
        """Return the current time."""
        return self.now


class _StepRunner:
    """The state of a running test.

    `approve` refers to `_last_decision`; `_running` are the calls that have not returned, by name.
    """

    def __init__(self, suite: Suite, test: Test, coverage: CoverageRecorder) -> None:
        self._suite = suite
        self._test = test
        self._coverage = coverage
        self._clock = _Clock(test.session.at)
        self._guard = ReplayGuard(suite.compiled, clock=self._clock)
        self._guard.on(coverage.record_event)
        self._sessions: dict[str, Session] = {}
        self._last_decision: Decision | None = None
        self._running: defaultdict[str, deque[Decision]] = defaultdict(deque)
        self._step_text = ""

    def open(self) -> None:
        """Open the sessions: the test's own if it is used, then the others in order."""
        test = self._test
        used = {step.in_ for step in test.steps} | {spec.parent for spec in test.sessions.values()}
        if MAIN_SESSION in used:
            self._open(MAIN_SESSION, test.session, (*test.path, "session"))
        for name, spec in test.sessions.items():
            self._open(name, spec, (*test.path, "sessions", name))

    def _open(self, name: str, spec: SessionSpec, path: Path) -> None:
        self._step_text = f"open session {name}"
        try:
            self._sessions[name] = self._guard.session(
                name,
                parent=self._sessions[spec.parent] if spec.parent is not None else None,
                agent=spec.agent,
                user=spec.user,
                roles=spec.roles,
                project=spec.project,
                cwd=spec.cwd,
                tags=spec.tags,
            )
        except ValueError as error:
            mismatch = Mismatch("session", "a session", str(error))
            raise _StepFailed(path, mismatch, key=True) from None
        if spec.tools is not None:
            self._sessions[name].offer(spec.tools)
        for mark, key in list_marks(spec.marks):
            self._sessions[name].mark(mark, key)

    def run_step(self, step: Step) -> None:
        """Run a step and check its expectations."""
        session = self._sessions[step.in_]
        self._step_text = _describe_step(step, len(self._test.steps))
        if step.turn:
            session.turn()
        for change, change_mark in ((step.mark, session.mark), (step.unmark, session.unmark)):
            if change is not None:
                change_mark(*((change,) if isinstance(change, str) else change))
        if step.grant is not None:
            session.grant(*step.granted, by="test")
        if step.approve:
            self._approve(
                step,
                step.approve if isinstance(step.approve, ScriptedApproval) else ScriptedApproval(),
            )
        if step.spend is not None:
            session.spend(
                tokens=int(step.spend.get("tokens", 0)),
                cost=step.spend.get("cost", 0.0),
                model_calls=int(step.spend.get("model_calls", 0)),
            )
        for time in range(step.times):
            if step.wait is not None:
                self._clock.now += parse_nanoseconds(step.wait)
            if step.returns is not None:
                self._record(self._running[step.returns].popleft(), step)
            if step.call is not None:
                self._step_text = _describe_step(step, len(self._test.steps), time)
                self._run_call(session, step)
        for name, expected in step.state.items():
            self._compare_state(session, (*step.path, "state", name), expected)
        if step.progress is not None:
            self._compare_state(session, (*step.path, "progress"), step.progress)

    def _approve(self, step: Step, approval: ScriptedApproval) -> None:
        decision = self._last_decision
        if decision is None or decision.effect is not Effect.ASK:
            found = "no call yet"
            if decision is not None:
                found = f"the last call was answered with {decision.effect}"
            mismatch = Mismatch("approve", "a call answered with ask", found)
            raise _StepFailed((*step.path, "approve"), mismatch, decision=decision, key=True)
        session = self._sessions[decision.session]
        session.approve(decision, by=approval.by, labels=approval.labels)

    def _run_call(self, session: Session, step: Step) -> None:
        decision = self._last_decision = self._check(session, step)
        self._coverage.record_decision(decision, self._guard)
        mismatches = tuple(compare_decision(decision, step, self._coverage.ids))
        if mismatches:
            raise _StepFailed(
                _mismatch_path(step, mismatches[0]), *mismatches, decision=decision, session=session
            )
        if step.release:
            session.release(decision)
        elif step.as_ is not None:
            self._running[step.as_].append(decision)
        elif decision.allowed and not step.running:
            self._record(decision, step)

    def _check(self, session: Session, step: Step) -> Decision:
        tool, args = self._arguments(step)
        try:
            return session.check(
                tool,
                args,
                batch=step.batch,
                tags=step.tags,
                server=step.server,
                hints=step.hints,
                definition=step.definition,
                estimate=step.estimate,
            )
        except ValueError as error:
            mismatch = Mismatch("tags", "the tags of a call", str(error))
            raise _StepFailed((*step.path, "tags"), mismatch, key=True) from None

    def _record(self, decision: Decision, step: Step) -> None:
        """Record the result of a call that returns."""
        session = self._sessions[decision.session]
        recorded = record_result(session, decision, step.result)
        self._coverage.record_result(recorded)
        for path, mismatch in compare_result(recorded, step, self._coverage.ids):
            raise _StepFailed((*step.path, *path), mismatch, decision=decision, session=session)

    def _arguments(self, step: Step) -> tuple[str, dict[str, Any]]:
        assert step.call is not None  # noqa: S101 - checked by the caller
        ((tool, args),) = step.call.items()
        if isinstance(args, str):
            names = self._suite.compiled.policy.classify.shell.arguments or ("command",)
            return tool, {names[0]: args}
        return tool, args

    def _compare_state(self, session: Session, path: Path, expected: Any) -> None:
        name = str(path[-1])
        found = self._guard.inspect(session.id).get(name)
        if name == "elapsed":
            matches = found == scalars.parse_duration(expected)
            found = f"{(found or 0) / 1e9:g}s"
        elif isinstance(expected, bool) or not isinstance(expected, int | float):
            matches = found == (sorted(expected) if isinstance(expected, list) else expected)
        else:
            # Costs are sums of binary fractions: 0.1 three times is not 0.3.
            matches = found is not None and math.isclose(found, expected, abs_tol=1e-9)
        if not matches:
            texts = f"{name} {format_value(expected)}", f"{name} {format_value(found)}"
            mismatch = Mismatch(name, *texts)
            raise _StepFailed(path, mismatch, decision=self._last_decision, session=session)

    def build_failure(self, failed: _StepFailed) -> Failure:
        """Build the report of a failed step."""
        return self._suite.failure(
            failed.path,
            self._step_text,
            *failed.mismatches,
            decision=failed.decision,
            state=self._guard.inspect(failed.session.id) if failed.session else None,
            key=failed.key,
        )


def _mismatch_path(step: Step, mismatch: Mismatch) -> Path:
    """Return the path of the expectation, or of the call if there is none."""
    if getattr(step, mismatch.aspect, None) is None:
        return (*step.path, "call")
    return (*step.path, "expect" if mismatch.aspect == "effect" else mismatch.aspect)


def _describe_step(step: Step, total: int, time: int = 0) -> str:
    number = step.path[-1]
    assert isinstance(number, int)  # noqa: S101 - the index of a step in its list
    text = f"{number + 1} of {total}"
    if step.times > 1:
        text += f", time {time + 1} of {step.times}"
    if step.returns is not None:
        return f"{text}: `{step.returns}` returns"
    return f"{text}: {format_call(step.call)}" if step.call is not None else text
