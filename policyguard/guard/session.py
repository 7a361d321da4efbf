"""One agent's run under a guard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from policyguard.engines.fingerprint import text_of
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.evaluator import Request
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session import PROGRESSING, SessionState
from policyguard.guard import answers, running
from policyguard.guard.advice import Advice
from policyguard.journal.errors import JournalError
from policyguard.model.decision import Decision, Fault
from policyguard.model.effect import Effect
from policyguard.model.errors import ArgumentsError
from policyguard.model.event import (
    Admitted,
    Approved,
    Closed,
    Completed,
    Event,
    Granted,
    Refused,
    Released,
    Spent,
    TurnStarted,
)
from policyguard.model.outcome import Recorded
from policyguard.store.errors import StoreError

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard

R = TypeVar("R")


class Session:
    """One agent's run: its calls are checked and recorded here. Made by `Guard.session`.

    As a context manager it is the session of the functions decorated with `@guard.tool`.
    """

    def __init__(self, guard: Guard, state: SessionState, calls: int = 0) -> None:
        self.guard = guard
        self.id = state.id
        self._state = state
        self._calls = calls
        self._advice = Advice(guard.evaluator.bounds.in_flight)
        self.closed = False

    def check(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        at: int | None = None,
        batch: str | None = None,
        tags: Mapping[str, Any] | None = None,
        server: str = "",
        hints: Mapping[str, bool] | None = None,
        estimate: Mapping[str, float] | None = None,
    ) -> Decision:
        """Ask whether a call may run, and count it if it may: then report it with `record`.

        `at`: nanoseconds since 1970 (UTC), by default now. `batch`: an id that the parallel calls
        of one message share. `tags` overlay the session's. `server`: the tool server's name.
        `hints`: `read_only`, `destructive`, `idempotent`, `open_world`. `estimate`: tokens and
        cost to reserve, as `{"tokens": …, "cost": …}`.
        """
        request = answers.request(tool, args, batch, tags, server, hints, estimate)
        return self._judge(request, self._now(at), admit=True)

    def decide(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        at: int | None = None,
        batch: str | None = None,
        tags: Mapping[str, Any] | None = None,
        server: str = "",
        hints: Mapping[str, bool] | None = None,
        estimate: Mapping[str, float] | None = None,
    ) -> Decision:
        """Answer as `check` would, and change nothing. Its decision cannot be recorded."""
        request = answers.request(tool, args, batch, tags, server, hints, estimate)
        return self._judge(request, self._now(at), admit=False)

    def record(
        self,
        decision: Decision | str,
        *,
        result: Any = None,
        error: BaseException | str | None = None,
        exit_code: int | None = None,
        status: int | None = None,
        retry_after: float | None = None,
        blame: str | None = None,
        duration: float | None = None,
        tokens: int | None = None,
        cost: float | None = None,
        score: float | None = None,
        meta: Mapping[str, Any] | None = None,
        at: int | None = None,
    ) -> Recorded:
        """Report what came of an admitted call.

        `result` is what the tool gave (text, or JSON-like), `error` what it raised or said
        instead; a non-zero `exit_code` or an HTTP `status` of 400 or more is a failure too.
        `duration` and `retry_after` are seconds. `blame` (`agent`, `harness`, `unknown`) overrides
        the policy's. A call that is not in flight (refused, or reported before) is judged, and
        counts nowhere.
        """
        if isinstance(error, BaseException):
            error = f"{type(error).__name__}: {error}"
        return self._complete(
            Completed(
                session=self.id,
                at=self._now(at),
                call=_id(decision),
                ok=None if error is None else False,
                text=text_of(result),
                error=error,
                exit_code=exit_code,
                status=status,
                retry_after=retry_after,
                blame=blame or "",
                duration=duration,
                tokens=tokens,
                cost=cost,
                score=score,
                meta=dict(meta) if meta else {},
            )
        )

    def release(self, decision: Decision | str) -> None:
        """Take an admission back: the call did not run and leaves windows and budgets."""
        with self.guard.lock:
            call = _id(decision)
            self._fold(Released(session=self.id, at=self._now(None), call=call))

    def approve(self, decision: Decision, *, by: str, labels: Iterable[str] = ()) -> None:
        """Say yes to a call that was answered with *ask*: it may be checked once more, and runs.

        Only *ask* is waived; what blocks or halts stays. The approval is bound to the call's tool
        and arguments. `by` names who approves.
        """
        if decision.effect is not Effect.ASK or decision.session != self.id:
            raise ValueError(f"call `{decision.id}` is not one that this session was asked about")
        self._fold(
            Approved(
                session=self.id,
                at=self._now(None),
                call=decision.id,
                fingerprint=decision.fingerprint,
                by=by,
                labels=tuple(labels),
            )
        )

    def grant(self, budget: str, amount: float, *, by: str) -> None:
        """Raise a budget where this session draws on it, and lift a halt.

        `amount` is in the budget's own unit (seconds for `time`). `KeyError` for an unknown budget.
        """
        budgets = self.guard.evaluator.budgets
        id_ = budget if budget in budgets else f"budgets/{budget}"
        if id_ not in budgets:
            known = ", ".join(name.partition("/")[2] for name in budgets) or "none"
            raise KeyError(f"no budget `{budget}` in this policy; it has: {known}")
        self._fold(Granted(session=self.id, at=self._now(None), budget=id_, amount=amount, by=by))

    def turn(self) -> None:
        """Begin a new turn: the person has spoken. Lifts a halt; what counts per turn is new."""
        self._fold(TurnStarted(session=self.id, at=self._now(None)))

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        """Count tokens and cost that the model used between calls."""
        self._spend(Spent(session=self.id, at=self._now(None), tokens=tokens, cost=cost))

    def close(self) -> None:
        """End the session: what was counted for it alone is forgotten, and it refuses all calls."""
        self.replay(Closed(session=self.id, at=self._now(None)))

    def run(self, tool: str, args: Mapping[str, Any] | None, fn: Callable[[], R]) -> R:
        """Check a call, run `fn`, record what came of it, and return its result.

        A refused call raises `CallRefused`; an exception of `fn` is recorded as the call's error
        and raised. Advice is appended to a result that is text.
        """
        return running.run(self, tool, args, fn)

    async def arun(
        self, tool: str, args: Mapping[str, Any] | None, fn: Callable[[], Awaitable[R]]
    ) -> R:
        """Do the same with an async `fn`. A cancelled call is released."""
        return await running.arun(self, tool, args, fn)

    @property
    def progress(self) -> str:
        """How it goes: `progressing`, `plateau`, `exhausted` or `constrained_out`.

        *plateau*: the scores have not become better for long; *exhausted*: whatever the session
        has tried is banned by what was learned; *constrained_out*: nearly all of it.
        """
        with self.guard.lock:
            return str(self._state.facts["progress"])

    @property
    def done(self) -> bool:
        """Whether to stop: it is not progressing any more."""
        return self.progress != PROGRESSING

    def __enter__(self) -> Self:
        running.entered.set((*running.entered.get(), self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        running.entered.set(running.entered.get()[:-1])

    def replay(self, event: Event) -> Decision | Recorded | None:
        """Put a recorded event through the same code as a live call, at its own time.

        An `Admitted` (or `Refused`: it was attempted) gives the Decision of this policy, whose id
        is the recorded call's; a `Completed` the Recorded.
        """
        match event:
            case Admitted() | Refused():
                request = Request(
                    event.tool,
                    event.args or {},
                    event.server,
                    event.batch,
                    event.tags,
                    event.hints,
                    event.estimate,
                )
                return self._judge(request, event.at, admit=True, call=event.call)
            case Completed():
                return self._complete(event)
            case Spent():
                self._spend(event)
            case Closed():
                with self.guard.lock:
                    if not self.closed:
                        self._fold(event)
                        self.guard.forget(self)
                        self.closed = True
            case _:
                self._fold(event)
        return None

    def _now(self, at: int | None) -> int:
        return self.guard.clock() if at is None else at

    def _judge(self, request: Request, at: int | None, *, admit: bool, call: str = "") -> Decision:
        guard, evaluator = self.guard, self.guard.evaluator
        judged: tuple[Attempt, Plan] | None = None
        with guard.lock:
            if admit:
                guard.touch(self)
                self._calls += 1
                call = call or f"c{self._calls}"
            try:
                if self.closed:
                    verdict = answers.CLOSED
                else:
                    if guard.keeper is not None:
                        guard.keeper.look()
                    attempt, plan, view = evaluator.prepare(self._state, request, at)
                    judged = attempt, plan
                    learned = guard.world.judge(self._state, attempt, view)
                    verdict = evaluator.judge(
                        guard.world.state,
                        self._state,
                        attempt,
                        plan,
                        view,
                        learned,
                        observe=guard.observe,
                    )
            except ArgumentsError as error:
                verdict = answers.unfit(str(error))
            except Exception as error:  # noqa: BLE001 - the policy says what a defect of ours means
                verdict = answers.broken(error, allow=evaluator.allow_on_internal_error)
            fingerprint = judged[0].fingerprint if judged is not None else ""
            decision = answers.decision(self.id, request.tool, call, verdict, fingerprint)
            if admit:
                try:
                    self._settle(decision, request, judged, at)
                except (JournalError, StoreError) as error:
                    return self._unwritten(decision, error)
        return decision

    def _unwritten(self, decision: Decision, error: Exception) -> Decision:
        """The answer where an event could not be written down: as `on_internal_error` says."""
        fault = Fault("journal", str(error))
        if decision.allowed and not self.guard.evaluator.allow_on_internal_error:
            released = Released(session=self.id, call=decision.id)
            self.guard.world.fold(released)
            verdict = answers.broken(error, allow=False)._replace(faults=(fault,))
            return answers.decision(
                self.id, decision.tool, decision.id, verdict, decision.fingerprint
            )
        return msgspec.structs.replace(decision, errors=(*decision.errors, fault))

    def _settle(
        self,
        decision: Decision,
        request: Request,
        judged: tuple[Attempt, Plan] | None,
        at: int | None,
    ) -> None:
        """Count an admitted call, note a refused one."""
        guard = self.guard
        if not decision.allowed:
            refused = answers.refused(decision, request, judged[0] if judged else None, at)
            guard.world.refuse(self._state, refused)
            guard.emit(refused)
        elif judged is not None:
            attempt, plan = judged
            attempt.id = decision.id
            admitted = answers.admitted(self.id, attempt)
            guard.world.admit(self._state, admitted, attempt, plan)
            guard.emit(admitted)
            if decision.violations:
                self._advice.give(attempt.batch or decision.id, decision.message)

    def _complete(self, event: Completed) -> Recorded:
        guard, evaluator = self.guard, self.guard.evaluator
        with guard.lock:
            flight = self._state.flights.get(event.call)
            if flight is None:
                outcome = evaluator.observer.observe(event, None, None, [])
                return Recorded(outcome=outcome)
            attempt = flight.attempt
            last = self._state.results.get(attempt.fingerprint)
            outcome, charges, view, faults = evaluator.settle(self._state, attempt, event, last)
            lessons = guard.world.lessons(self._state, attempt, view, event, outcome, faults)
            at = self._state.clamp(event.at)
            folded = answers.completed(event, at, outcome, charges, lessons)
            fold = partial(guard.world.complete, self._state, folded, flight, outcome)
            keeper = guard.keeper
            learned = fold() if keeper is None else keeper.complete(fold, folded, faults)
            try:
                guard.emit(folded)
            except (JournalError, StoreError) as error:
                faults.append(Fault("journal", str(error)))
            advice = self._advice.take(attempt.batch or event.call, last=not attempt.batch)
        return Recorded(
            outcome=outcome, advice=advice, learned=tuple(learned), errors=tuple(faults)
        )

    def _spend(self, event: Spent) -> None:
        with self.guard.lock:
            charges = self.guard.evaluator.spend(self._state, event.tokens, event.cost)
            self._fold(
                Spent(
                    session=self.id,
                    at=event.at,
                    tokens=event.tokens,
                    cost=event.cost,
                    charges=charges,
                )
            )

    def _fold(self, event: Event) -> None:
        guard = self.guard
        with guard.lock:
            guard.world.fold(event)
            guard.emit(event)


def _id(decision: Decision | str) -> str:
    return decision if isinstance(decision, str) else decision.id
