"""The runner of a test's trace: every call is admitted, except those that the test names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from policyguard.engines.yaml_tree import Path
from policyguard.guard.replay import ReplayGuard, ReplaySession
from policyguard.model.event import (
    Admitted,
    Approved,
    Denied,
    Event,
    Refused,
    SessionEnded,
    SessionStarted,
)
from policyguard.model.outcome import Recorded
from policyguard.report.policy_tests.results import Failure, Mismatch
from policyguard.testing.coverage import CoverageRecorder
from policyguard.testing.expectations import compare_decision, format_call
from policyguard.testing.suite import ExpectedCall, ExpectedDecision, Suite, Test, resolve_reference
from policyguard.traces import Reader, Skipped, TraceFile

_OWN_FORMAT = "policyguard"
"""In our own format every line is an event; other formats' importers skip what is not a call."""


def run_trace(suite: Suite, test: Test, coverage: CoverageRecorder) -> Iterator[Failure]:
    """Replay a test's trace as `policyguard simulate` does, and yield the failures.

    The results of refused calls are dropped; *ask* is never approved.
    """
    yield from _TraceRunner(suite, test, coverage).run()


class _TraceRunner:
    """The state of a replay.

    `_unmatched` are expectations that no call has met, `_unopened` sessions that failed to open.
    """

    def __init__(self, suite: Suite, test: Test, coverage: CoverageRecorder) -> None:
        self._suite = suite
        self._test = test
        self._coverage = coverage
        self._guard = ReplayGuard(suite.compiled)
        self._sessions: dict[str, ReplaySession] = {}
        self._unopened: set[str] = set()
        self._call_count = 0
        self._session_call_counts: Counter[str] = Counter()
        self._unmatched = list(test.expect)
        self._refused_ranges = list(_parse_ranges(test.refused))

    def run(self) -> Iterator[Failure]:
        """Replay the whole trace."""
        trace = Reader().read(resolve_reference(self._suite.file, self._test.trace or ""))
        for item in trace:
            if isinstance(item, Skipped):
                yield from self._check_skipped(trace, item)
            else:
                yield from self._replay_event(item)
        if self._unopened:
            return
        if not self._call_count and trace.format is not None:
            yield self._trace_failure("trace", "a call in the trace", "none")
        for call in self._unmatched:
            expected = f"a call {call.call}" + (f" of session `{call.in_}`" if call.in_ else "")
            yield self._failure((*call.path, "call"), expected, self._total)
        for number, (_, last) in enumerate(self._refused_ranges):
            if last > self._call_count:
                path = (*self._test.path, "refused", number)
                yield self._failure(path, f"a call {last}", self._total)

    @property
    def _total(self) -> str:
        return f"{self._call_count} calls in all"

    def _check_skipped(self, trace: TraceFile, item: Skipped) -> Iterator[Failure]:
        if trace.format in (None, _OWN_FORMAT):
            location = f"line {item.line}: " if item.line else ""
            yield self._trace_failure("trace", "a trace", f"{location}{item.reason}")

    def _replay_event(self, event: Event) -> Iterator[Failure]:
        if event.session in self._unopened:
            return
        session = self._sessions.get(event.session)
        if session is None:
            started = (
                event
                if isinstance(event, SessionStarted)
                else SessionStarted(event.session, event.at)
            )
            try:
                session = self._guard.start_session(self._fill_in(started))
            except ValueError as error:
                self._unopened.add(event.session)
                yield self._trace_failure("session", "a session", str(error))
                return
            self._sessions[event.session] = session
        if isinstance(event, Admitted | Refused):
            yield from self._replay_call(session, event)
        elif not isinstance(event, SessionStarted | Approved | Denied):
            recorded = session.apply(event)
            if isinstance(recorded, Recorded):
                self._coverage.record_result(recorded)
            if isinstance(event, SessionEnded):
                del self._sessions[event.session]

    def _fill_in(self, started: SessionStarted) -> SessionStarted:
        """Complete the start of a session with what the test says about it."""
        spec, declared = self._test.session, self._suite.compiled.policy.tags
        known = {name: value for name, value in started.tags.items() if name in declared}
        return msgspec.structs.replace(
            started,
            agent=started.agent or spec.agent,
            user=started.user or spec.user,
            roles=started.roles or spec.roles,
            project=started.project or spec.project,
            cwd=started.cwd or spec.cwd or "",
            tags=self._suite.compiled.evaluator.check_tags({**spec.tags, **known}),
        )

    def _replay_call(self, session: ReplaySession, event: Admitted | Refused) -> Iterator[Failure]:
        self._call_count += 1
        self._session_call_counts[event.session] += 1
        path, expected, refused = self._find_expected(event)
        step = f"call {self._call_count}"
        if event.args is None:
            yield self._failure(path, "a call with arguments", "they are redacted", step=step)
            return
        step += (
            f" (`{event.call}` of `{event.session}`): {format_call({event.shown_tool: event.args})}"
        )
        decision = session.check(event)
        self._coverage.record_decision(decision, self._guard)
        mismatches = tuple(
            compare_decision(decision, expected, self._coverage.ids, refused=refused)
        )
        if mismatches:
            state = self._guard.inspect(session.id)
            yield self._suite.failure(path, step, *mismatches, decision=decision, state=state)

    def _find_expected(self, event: Admitted | Refused) -> tuple[Path, ExpectedDecision, bool]:
        """Return the expected decision of a call, its path, and whether it must be refused."""
        for call in self._unmatched:
            if self._is_meant(call, event):
                self._unmatched.remove(call)
                expected = ExpectedDecision(effect=call.effect, by=call.by, says=call.says)
                return call.path, expected, call.effect is None
        for number, (first, last) in enumerate(self._refused_ranges):
            if first <= self._call_count <= last:
                return (*self._test.path, "refused", number), ExpectedDecision(), True
        return (*self._test.path, "trace"), ExpectedDecision(), False

    def _is_meant(self, call: ExpectedCall, event: Admitted | Refused) -> bool:
        if call.in_ is not None and call.in_ != event.session:
            return False
        if isinstance(call.call, str):
            return call.call == event.call
        return call.call == (
            self._call_count if call.in_ is None else self._session_call_counts[event.session]
        )

    def _trace_failure(self, key: str, expected: str, found: str) -> Failure:
        return self._failure((*self._test.path, key), expected, found)

    def _failure(self, path: Path, expected: str, found: str, step: str = "the trace") -> Failure:
        return self._suite.failure(path, step, Mismatch("trace", expected, found))


def _parse_ranges(items: Iterable[int | str]) -> Iterator[tuple[int, int]]:
    """Parse `7` and `5-20` into first and last."""
    for item in items:
        first, _, last = str(item).partition("-")
        yield int(first), int(last or first)
