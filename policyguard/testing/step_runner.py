"""A test's steps, one after the other, through a guard of its own."""

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
from policyguard.testing.clock import Clock, parse_nanoseconds
from policyguard.testing.coverage import CoverageRecorder
from policyguard.testing.decision_check import compare_decision
from policyguard.testing.formatting import format_call, format_state, format_value
from policyguard.testing.result_check import compare_result, record_result
from policyguard.testing.suite import MAIN_SESSION, Approval, SessionSpec, Step, Suite, Test


def run_steps(suite: Suite, test: Test, coverage: CoverageRecorder) -> Failure | None:
    """Go through a test's steps; the first that goes otherwise than it says ends the test."""
    story = _StepRunner(suite, test, coverage)
    try:
        story.open()
        for step in test.steps:
            story.run_step(step)
    except _StepFailed as different:
        return story.build_failure(different)
    return None


class _StepFailed(Exception):  # noqa: N818 - not an error: the way out of the steps
    """A step went otherwise. `path` leads to what the test says; `key` points at the key there."""

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


class _StepRunner:
    """A test while it runs.

    `asked` is the last decision, which `approve` is about; `running` are the calls that have not
    come back, by name.
    """

    def __init__(self, suite: Suite, test: Test, coverage: CoverageRecorder) -> None:
        self._suite = suite
        self._test = test
        self._coverage = coverage
        self._clock = Clock(test.session.at)
        self._guard = ReplayGuard(suite.compiled, clock=self._clock)
        self._sessions: dict[str, Session] = {}
        self._last_decision: Decision | None = None
        self._running: defaultdict[str, deque[Decision]] = defaultdict(deque)
        self._step_text = ""

    def open(self) -> None:
        """Open the sessions: the test's own, where it is used, and those beside it in order."""
        test = self._test
        used = {step.in_ for step in test.steps} | {who.parent for who in test.sessions.values()}
        if MAIN_SESSION in used:
            self._open(MAIN_SESSION, test.session, (*test.path, "session"))
        for name, who in test.sessions.items():
            self._open(name, who, (*test.path, "sessions", name))

    def _open(self, name: str, who: SessionSpec, path: Path) -> None:
        self._step_text = f"session {name} opens"
        try:
            self._sessions[name] = self._guard.session(
                name,
                parent=self._sessions[who.parent] if who.parent is not None else None,
                agent=who.agent,
                user=who.user,
                roles=who.roles,
                project=who.project,
                cwd=who.cwd,
                tags=who.tags,
            )
        except ValueError as error:
            raise _StepFailed(
                path, Mismatch("session", "a session", str(error)), key=True
            ) from None

    def run_step(self, step: Step) -> None:
        """Do what a step says, and hold what comes of it against what it says."""
        session = self._sessions[step.in_]
        self._step_text = _describe_step(step, len(self._test.steps))
        if step.turn:
            session.turn()
        if step.grant is not None:
            session.grant(*step.granted, by="test")
        if step.approve:
            self._approve(step, step.approve if isinstance(step.approve, Approval) else Approval())
        if step.spend is not None:
            tokens, cost = step.spend.get("tokens", 0), step.spend.get("cost", 0.0)
            session.spend(tokens=int(tokens), cost=cost)
        for time in range(step.times):
            if step.wait is not None:
                self._clock.now += parse_nanoseconds(step.wait)
            if step.returns is not None:
                self._record(self._running[step.returns].popleft(), step)
            if step.call is not None:
                self._step_text = _describe_step(step, len(self._test.steps), time)
                self._run_call(session, step)
        for name, wanted in step.state.items():
            self._compare_state(session, (*step.path, "state", name), wanted)
        if step.progress is not None:
            self._compare_state(session, (*step.path, "progress"), step.progress)

    def _approve(self, step: Step, yes: Approval) -> None:
        asked = self._last_decision
        if asked is None or asked.effect is not Effect.ASK:
            found = "no call yet"
            if asked is not None:
                found = f"the last call was answered with {asked.effect}"
            mismatch = Mismatch("approve", "a call that was answered with ask", found)
            raise _StepFailed((*step.path, "approve"), mismatch, decision=asked, key=True)
        self._sessions[asked.session].approve(asked, by=yes.by, labels=yes.labels)

    def _run_call(self, session: Session, step: Step) -> None:
        decision = self._last_decision = self._check(session, step)
        self._coverage.record_decision(decision, self._guard)
        mismatches = tuple(compare_decision(decision, step.expected, self._coverage.ids))
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
                estimate=step.estimate,
            )
        except ValueError as error:
            what = Mismatch("tags", "the tags of a call", str(error))
            raise _StepFailed((*step.path, "tags"), what, key=True) from None

    def _record(self, decision: Decision, step: Step) -> None:
        """A call comes back."""
        session = self._sessions[decision.session]
        recorded = record_result(session, decision, step.result)
        self._coverage.record_result(recorded)
        for path, mismatch in compare_result(recorded, step):
            raise _StepFailed((*step.path, *path), mismatch, decision=decision, session=session)

    def _arguments(self, step: Step) -> tuple[str, dict[str, Any]]:
        assert step.call is not None  # noqa: S101 - the caller has asked
        ((tool, given),) = step.call.items()
        if isinstance(given, str):
            names = self._suite.compiled.policy.classify.shell.arguments or ("command",)
            return tool, {names[0]: given}
        return tool, given

    def _compare_state(self, session: Session, path: Path, wanted: Any) -> None:
        name = str(path[-1])
        found = self._guard.inspect(session.id).get(name)
        if name == "elapsed":
            same = found == scalars.parse_duration(wanted)
            found = f"{(found or 0) / 1e9:g}s"
        elif isinstance(wanted, bool) or not isinstance(wanted, int | float):
            same = found == wanted
        else:
            # Costs are sums of binary fractions: 0.1 three times is not 0.3.
            same = found is not None and math.isclose(found, wanted, abs_tol=1e-9)
        if not same:
            mismatch = Mismatch(
                name, f"{name} {format_value(wanted)}", f"{name} {format_value(found)}"
            )
            raise _StepFailed(path, mismatch, decision=self._last_decision, session=session)

    def build_failure(self, different: _StepFailed) -> Failure:
        """What a reader needs to see why the test failed."""
        span = self._suite.span_of(different.path, key=different.key)
        session = different.session
        known = self._guard.inspect(session.id) if session is not None else {}
        return Failure(
            span=span,
            lines=self._suite.lines(span),
            step=self._step_text,
            mismatches=different.mismatches,
            decision=different.decision,
            state=format_state(known),
        )


def _mismatch_path(step: Step, mismatch: Mismatch) -> Path:
    """Where the test says what was expected; where it says nothing, the call."""
    key = {"effect": "expect", "internal": "call"}.get(mismatch.aspect, mismatch.aspect)
    said = {
        "expect": step.expect,
        "by": step.by,
        "says": step.says,
        "would": step.would,
        "timeout": step.timeout,
        "structured": step.structured,
    }
    return (*step.path, key if said.get(key) is not None else "call")


def _describe_step(step: Step, total: int, time: int = 0) -> str:
    number = step.path[-1]
    assert isinstance(number, int)  # noqa: S101 - the place of a step in its list
    text = f"{number + 1} of {total}"
    if step.times > 1:
        text += f", time {time + 1} of {step.times}"
    if step.returns is not None:
        return f"{text}: `{step.returns}` returns"
    return f"{text}: {format_call(step.call)}" if step.call is not None else text
