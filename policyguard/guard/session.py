"""One agent's run under a guard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.session_state import PROGRESSING, SessionState
from policyguard.evaluator.transitions import attempt_from_event
from policyguard.guard import validate
from policyguard.guard.approver import ask, is_approved
from policyguard.guard.call_pipeline import CallPipeline
from policyguard.guard.decisions import set_context
from policyguard.guard.tool_decorator import active_sessions, exit_session
from policyguard.guard.tool_results import error_text, parse_result
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.model.event import (
    Admitted,
    Approved,
    ChildCharged,
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
from policyguard.model.policy import Blame

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard

R = TypeVar("R")


class Session:
    """One agent's run: its calls are checked and recorded here. Made by `Guard.session`.

    As a context manager it is the session of the functions decorated with `@guard.tool`.
    """

    __slots__ = ("__weakref__", "_pipeline", "_state", "guard", "id")

    def __init__(self, guard: Guard, state: SessionState, last_number: int = 0) -> None:
        self.guard = guard
        self.id = state.id
        self._state = state
        self._pipeline = CallPipeline(guard, state, last_number)

    @property
    def closed(self) -> bool:
        """Whether it is over: it refuses all calls."""
        return self._pipeline.closed

    @property
    def disabled(self) -> dict[str, str]:
        """The tools that limits have switched off for now, and why: they need not be advertised.

        A call of one is refused; the tool comes back as the limit's `until` says. In observe mode
        there are none.
        """
        if self.guard._mode.observe:
            return {}
        with self.guard._lock:
            return {
                ban.tool: f"{ban.text} ({ban.limit.id}, {ban.duration_text})"
                for ban in self._state.bans.active.values()
                if ban.limit.settings.refuse_tool and not ban.limit.observe
            }

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
        of one message share. `tags` overlay the session's, with the types that the policy declares;
        one that it does not declare is ignored, since a host may serve several policies.
        `server`: the tool server's name. `hints`: `read_only`, `destructive`, `idempotent`,
        `open_world`. `estimate`: tokens and cost to reserve, as `{"tokens": …, "cost": …}`.

        `TypeError` for a value of another type, `ValueError` for such a tag and for a hint or an
        estimate of another name; but arguments that cannot be judged, which are the model's, are
        refused.

        A call that is answered with *ask* is put to the guard's approver; where it says yes at
        once, the call is checked again, and that answer is returned. Where it fails, the call
        stays refused, and `errors` says so.
        """
        at = self.guard._clock() if at is None else validate.integer("at", at)
        more = batch or tags or server or hints or estimate
        if type(tool) is str and type(args) is dict and not more:  # the common case, made short
            decision = self._pipeline.check(Attempt(tool, args.copy(), at, self._state), True)
        else:
            decision = self._evaluate(True, tool, args, at, batch, tags, server, hints, estimate)
        if decision.allowed or decision.effect is not Effect.ASK or self.guard._approver is None:
            return decision
        asked = ask(self.guard._approver, self, decision)
        with self.guard._lock:
            now, evaluator = self._now(), self.guard._evaluator
            if asked is not decision or not is_approved(evaluator, self._state, decision, now):
                return asked
        return self._evaluate(True, tool, args, at, batch, tags, server, hints, estimate)

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
        at = self.guard._clock() if at is None else validate.integer("at", at)
        return self._evaluate(False, tool, args, at, batch, tags, server, hints, estimate)

    def _evaluate(
        self,
        admit: bool,
        tool: str,
        args: Mapping[str, Any] | None,
        at: int,
        batch: str | None,
        tags: Mapping[str, Any] | None,
        server: str | None,
        hints: Mapping[str, bool] | None,
        estimate: Mapping[str, float] | None,
    ) -> Decision:
        tool, unfit = validate.text("tool", tool), ""
        try:
            attempt = Attempt(tool, {} if args is None else {**args}, at, self._state)
        except TypeError:
            attempt = Attempt(tool, {}, at, self._state)
            unfit = f"they are of type `{type(args).__name__}`, not an object"
        if batch or tags or server or hints or estimate:
            check_tags = self.guard._evaluator.check_tags
            set_context(attempt, check_tags, batch, tags, server, hints, estimate)
        return self._pipeline.check(attempt, admit, unfit)

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
        instead: any text is a failure, an empty one too, and None is none. A non-zero `exit_code`
        or an HTTP `status` of 400 or more is a failure too.
        `duration` and `retry_after` are seconds. `blame` (`agent`, `harness`, `unknown`) overrides
        the policy's. A call that is not in flight (refused, or reported before) is judged, and
        counts nowhere.

        A `result` may be an MCP tool result as it came over the wire (a mapping or an object with
        `content` and `isError`): its text, its error flag and its `_meta` are read, but for the
        keys that only the host may set (`outcomes.meta.harness`). `meta` is the host's own word.

        `TypeError` for a value of another type, `ValueError` for another word as `blame` and for a
        decision of another session; the call may then be reported again.
        """
        if error is not None and type(error) is not str:
            validate.error_value("error", error)
            error = error_text(error)
        text, failed, pending = result, error is not None, False
        host = validate.mapping("meta", meta) if meta else {}
        if type(result) is not str:
            said = parse_result(result, self.guard._evaluator.outcome_classifier.harness_keys)
            text, failed, pending = said.text, failed or said.failed, said.pending
            host = {**said.meta, **host}
        if exit_code is not None:
            exit_code = validate.integer("exit_code", exit_code)
        if status is not None:
            status = validate.integer("status", status)
        if retry_after is not None:
            retry_after = validate.duration("retry_after", retry_after)
        if duration is not None:
            duration = validate.duration("duration", duration)
        if tokens is not None:
            tokens = validate.integer("tokens", tokens)
        if cost is not None:
            cost = validate.usage("cost", cost)
        if score is not None:
            score = validate.number("score", score)
        return self._pipeline.complete(
            Completed(
                self.id,
                self.guard._clock() if at is None else validate.integer("at", at),
                decision.id
                if type(decision) is Decision and decision.session == self.id
                else validate.call_id(decision, self.id),
                False if failed else None,
                text=text,
                error=error,
                exit_code=exit_code,
                status=status,
                retry_after=retry_after,
                duration=duration,
                tokens=tokens,
                cost=cost,
                score=score,
                meta=host,
                blame=validate.choice("blame", blame, get_args(Blame)) if blame else "",
                state="pending" if pending else "",
            )
        )

    def release(self, decision: Decision | str) -> None:
        """Take an admission back: the call did not run and leaves windows and budgets.

        Nothing happens where the session is over: its calls were given up. `ValueError` for a
        decision of another session.
        """
        call = validate.call_id(decision, self.id)
        with self.guard._lock:
            if not self.closed:
                self._pipeline.fold(Released(session=self.id, at=self._now(), call=call))

    def approve(self, decision: Decision, *, by: str, labels: Iterable[str] = ()) -> bool:
        """Say yes to a call that was answered with *ask*: it may be checked once more, and runs.

        Only *ask* is waived; what blocks or halts stays. The approval is bound to the call's tool,
        server and arguments (but for those that `classify.fingerprint` ignores, and as it folds
        them), and is used up by the next check of it. A budget that asked is raised by its
        `extend`. `by` names who approves, `labels` what the host knows them as.

        Returns whether that is enough: a rule may want several people, people with a label, or an
        answer within a time. A yes that no question of a `check` waits for (the call has run, or
        `decide` asked) counts nowhere, and is not enough. `RuntimeError` where the session is over.
        """
        if decision.effect is not Effect.ASK or decision.session != self.id:
            raise ValueError(f"call `{decision.id}` is not one that this session was asked about")
        by, known_as = validate.text("by", by), validate.text_list("labels", labels)
        at = self._now()
        fingerprint = decision.fingerprint
        with self.guard._lock:
            raised = self._state.approvals.charges_to_extend(fingerprint)
            self._pipeline.fold(Approved(self.id, at, decision.id, fingerprint, by, known_as))
            for charge in raised:  # a yes that is repeated raises nothing more
                extend = self.guard._evaluator.budgets[charge.budget].extension
                self._pipeline.fold(Granted(self.id, at, charge.budget, extend, by, charge.key))
            return is_approved(self.guard._evaluator, self._state, decision, at)

    def grant(self, budget: str, amount: float | None = None, *, by: str) -> None:
        """Raise a budget where this session draws on it, and lift a halt.

        `amount` is in the budget's own unit (seconds for `time`), by default the budget's `extend`.
        `KeyError` for an unknown budget, `ValueError` for one without `extend` and no amount, and
        for an amount that is not finite or below 0, `RuntimeError` where the session is over; and
        `JournalError` or `StoreError`.
        """
        budgets = self.guard._evaluator.budgets
        id_ = budget if budget in budgets else f"budgets/{budget}"
        if id_ not in budgets:
            known = ", ".join(name.partition("/")[2] for name in budgets) or "none"
            raise KeyError(f"no budget `{budget}` in this policy; it has: {known}")
        if amount is None:
            if budgets[id_].extend is None:
                raise ValueError(f"budget `{budget}` has no `extend`: say how much to grant")
            amount = budgets[id_].extension
        amount = validate.amount("amount", amount)
        self._pipeline.fold(Granted(self.id, self._now(), id_, amount, validate.text("by", by)))

    def turn(self) -> None:
        """Begin a new turn: lifts a halt, counts anew. `RuntimeError` where the session is over."""
        self._pipeline.fold(TurnStarted(session=self.id, at=self._now()))

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        """Count tokens and cost that the model used between calls.

        `ValueError` for what is not finite or below 0, `RuntimeError` where the session is over.
        """
        tokens = validate.integer("tokens", validate.amount("tokens", tokens))
        cost = validate.amount("cost", cost)
        self._pipeline.spend(Spent(session=self.id, at=self._now(), tokens=tokens, cost=cost))

    def close(self) -> None:
        """End the session: what was counted for it alone is forgotten, and it refuses all calls.

        Its sub-agents' sessions are ended first. Raises `JournalError` or `StoreError` where
        something could not be written down; all of them are over none the less.
        """
        with self.guard._lock, ExitStack() as last:
            last.callback(self._replay, Closed(session=self.id, at=self._now()))
            for below in (
                () if self.closed else self.guard._open_sessions.children_of(self.id)
            ):  # or a namesake's
                last.callback(below.close)

    def _detach(self) -> None:
        """Refuse all calls from now on: the guard is closed, another may go on with the session."""
        self._pipeline.detach()

    def run(self, tool: str, args: Mapping[str, Any] | None, fn: Callable[[], R]) -> R:
        """Check a call, run `fn`, record what came of it, and return its result.

        A refused call raises `CallRefused`; an exception of `fn` is recorded as the call's error
        and raised. A result that is text comes back as the model is to see it, advice appended.
        `TypeError` where `fn` is no function, before anything is counted.

        Where the policy limits the call's time, `fn` runs in a thread of its own, and a call that
        runs out of time is recorded as failed and raises `ToolTimeoutError`. The thread goes on:
        it cannot be stopped. An `Ended` event tells when it is over.
        """
        from policyguard.guard.tool_runner import run  # asyncio, which a check does not need

        return run(self, tool, args, fn)

    async def arun(
        self, tool: str, args: Mapping[str, Any] | None, fn: Callable[[], Awaitable[R]]
    ) -> R:
        """Do the same with an async `fn`. A cancelled call is released.

        Whether `fn` is async shows only when it has run: where it gave nothing to await, the call
        is recorded as a failure of the harness, and raises `TypeError`.

        Where the policy limits the call's time, `fn` is awaited in a task of its own, which is
        cancelled when the time is over, and has `bounds.cleanup` to end.
        """
        from policyguard.guard.tool_runner import arun  # asyncio, which a check does not need

        return await arun(self, tool, args, fn)

    @property
    def progress(self) -> str:
        """How it goes: `progressing`, `plateau`, `exhausted` or `constrained_out`.

        *plateau*: the scores have not become better for long; *exhausted*: whatever the session
        has tried is banned by what was learned; *constrained_out*: nearly all of it.
        """
        with self.guard._lock:
            return str(self._state.cel_session["progress"])

    @property
    def done(self) -> bool:
        """Whether to stop: it is not progressing any more."""
        return self.progress != PROGRESSING

    def __enter__(self) -> Self:
        active_sessions.set((*active_sessions.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        exit_session(self)

    def _replay(self, event: Event) -> Decision | Recorded | None:
        """Put a recorded event through the same code as a live call, at its own time.

        An `Admitted` (or `Refused`: it was attempted) gives the Decision of this policy, whose id
        is the recorded call's; a `Completed` the Recorded.
        """
        match event:
            case Admitted() | Refused():
                return self._pipeline.check(attempt_from_event(self._state, event, event.at), True)
            case Completed():
                return self._pipeline.complete(event)
            case Spent() if not self.closed:
                self._pipeline.spend(event)
            case Closed():
                self._pipeline.end(event)
            case _ if not (self.closed or isinstance(event, ChildCharged)):  # that sub-agents tell
                self._pipeline.fold(event)
        return None

    def _preview_event(self, event: Admitted | Refused) -> Decision:
        """Answer a recorded call as `replay` would, and change nothing."""
        return self._pipeline.check(attempt_from_event(self._state, event, event.at), False)

    def _now(self) -> int:
        return self.guard._clock()
