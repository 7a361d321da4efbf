"""A test over a recorded run: every call is admitted, but those that the test names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from policyguard.engines.yaml_tree import Path
from policyguard.guard import Guard, Session
from policyguard.model.decision import Decision
from policyguard.model.event import Admitted, Approved, Closed, Event, Refused, Started
from policyguard.model.outcome import Recorded
from policyguard.report.results import Failure, Mismatch
from policyguard.testing import state
from policyguard.testing.beside import beside
from policyguard.testing.expect import compare
from policyguard.testing.reached import Reached
from policyguard.testing.suite import Expected, RecordedCall, Suite, Test
from policyguard.testing.wording import call_text
from policyguard.traces import Reader, Skipped, TraceFile

_OWN = "policyguard"
"""The format in which every line is an event; of others, importers pass over what is no call."""


def replay(suite: Suite, test: Test, reached: Reached) -> Iterator[Failure]:
    """Replay a test's recording as `policyguard simulate` does, and yield what goes otherwise.

    A refused call's result is not folded in, as it would never have come; nobody answers *ask*.
    """
    yield from _Replay(suite, test, reached).run()


class _Replay:
    """One recording on its way through a guard.

    `_left` are expectations that no call has met, `_lost` sessions that could not be opened.
    """

    def __init__(self, suite: Suite, test: Test, reached: Reached) -> None:
        self._suite = suite
        self._test = test
        self._reached = reached
        # All times in a replay are the events'.
        self._guard = Guard(suite.compiled, clock=lambda: 0, replaying=True)
        self._sessions: dict[str, Session] = {}
        self._lost: set[str] = set()
        self._calls = 0
        self._calls_in: Counter[str] = Counter()
        self._left = list(test.expect)
        self._refused = list(_ranges(test.refused))

    def run(self) -> Iterator[Failure]:
        """Replay the whole recording."""
        trace = Reader().read(beside(self._suite.file, self._test.trace or ""))
        for item in trace:
            if isinstance(item, Skipped):
                yield from self._skipped(trace, item)
            else:
                yield from self._event(item)
        if self._lost:
            return
        if not self._calls and trace.format is not None:
            yield self._nothing("trace", "a call in the recording", "none")
        for call in self._left:
            text = f"a call {call.call}" + (f" of session `{call.in_}`" if call.in_ else "")
            yield self._failure((*call.path, "call"), "", text, f"{self._calls} calls in all")
        for number, (_, last) in enumerate(self._refused):
            if last > self._calls:
                path = (*self._test.path, "refused", number)
                yield self._failure(path, "", f"a call {last}", f"{self._calls} calls in all")

    def _skipped(self, trace: TraceFile, item: Skipped) -> Iterator[Failure]:
        if trace.format in (None, _OWN):
            place = f"line {item.line}: " if item.line else ""
            yield self._nothing("trace", "a recording", f"{place}{item.reason}")

    def _event(self, event: Event) -> Iterator[Failure]:
        if event.session in self._lost:
            return
        session = self._sessions.get(event.session)
        if session is None:
            started = event if isinstance(event, Started) else Started(event.session, event.at)
            try:
                session = self._guard.start(self._filled(started), apart=True)
            except ValueError as error:
                self._lost.add(event.session)
                yield self._nothing("session", "a session", str(error))
                return
            self._sessions[event.session] = session
        if isinstance(event, Admitted | Refused):
            yield from self._call(session, event)
        elif not isinstance(event, Started | Approved):
            recorded = session.replay(event)
            if isinstance(recorded, Recorded):
                self._reached.recorded(recorded)
            if isinstance(event, Closed):
                del self._sessions[event.session]

    def _filled(self, started: Started) -> Started:
        """The start of a session, with what the test says where the recording says nothing."""
        who, declared = self._test.session, self._suite.compiled.policy.tags
        known = {name: value for name, value in started.tags.items() if name in declared}
        return msgspec.structs.replace(
            started,
            agent=started.agent or who.agent,
            user=started.user or who.user,
            roles=started.roles or who.roles,
            project=started.project or who.project,
            cwd=started.cwd or who.cwd or "",
            tags=self._suite.compiled.evaluator.check_tags({**who.tags, **known}),
        )

    def _call(self, session: Session, event: Admitted | Refused) -> Iterator[Failure]:
        self._calls += 1
        self._calls_in[event.session] += 1
        path, expected, refused = self._expected(event)
        said = f"call {self._calls}"
        if event.args is None:
            found = "its arguments were not kept"
            yield self._failure(path, said, "a call that can be judged", found)
            return
        said += f" (`{event.call}` of `{event.session}`): {call_text({event.tool: event.args})}"
        decision = session.replay(event)
        assert isinstance(decision, Decision)  # noqa: S101 - an attempt is answered by one
        self._reached.decision(decision, self._guard)
        mismatches = tuple(compare(decision, expected, self._reached.ids, refused=refused))
        if mismatches:
            yield self._failure(
                path, said, decision=decision, session=session, mismatches=mismatches
            )

    def _expected(self, event: Admitted | Refused) -> tuple[Path, Expected, bool]:
        """What the test says of a call, where it says so, and whether the call must be refused."""
        for call in self._left:
            if self._meant(call, event):
                self._left.remove(call)
                expected = Expected(effect=call.effect, by=call.by, says=call.says)
                return call.path, expected, call.effect is None
        for number, (first, last) in enumerate(self._refused):
            if first <= self._calls <= last:
                return (*self._test.path, "refused", number), Expected(), True
        return (*self._test.path, "trace"), Expected(), False

    def _meant(self, call: RecordedCall, event: Admitted | Refused) -> bool:
        if call.in_ is not None and call.in_ != event.session:
            return False
        if isinstance(call.call, str):
            return call.call == event.call
        return call.call == (self._calls if call.in_ is None else self._calls_in[event.session])

    def _nothing(self, key: str, expected: str, found: str) -> Failure:
        return self._failure((*self._test.path, key), "", expected, found)

    def _failure(
        self,
        path: Path,
        said: str,
        expected: str = "",
        found: str = "",
        *,
        mismatches: tuple[Mismatch, ...] = (),
        decision: Decision | None = None,
        session: Session | None = None,
    ) -> Failure:
        span = self._suite.where(path)
        known = state.fields(self._guard, session) if session is not None else {}
        return Failure(
            span=span,
            lines=self._suite.lines(span),
            step=said or "the recording",
            mismatches=mismatches or (Mismatch("trace", expected, found),),
            decision=decision,
            state=state.shown(known),
        )


def _ranges(items: Iterable[int | str]) -> Iterator[tuple[int, int]]:
    """`7` and `5-20` as first and last."""
    for item in items:
        first, _, last = str(item).partition("-")
        yield int(first), int(last or first)
