"""One agent's run under a guard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, get_args

from msgspec.structs import replace

from policyguard.evaluator.attempt import Attempt
from policyguard.guard import validate
from policyguard.guard.approvals.approver import ask, ask_async
from policyguard.guard.calls.batches import check_batch
from policyguard.guard.calls.decisions import set_context
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.sessions.approvals import SessionApprovals
from policyguard.guard.sessions.marks import MarkableSession
from policyguard.guard.sessions.status import SessionStatus
from policyguard.guard.tools.results import error_text, parse_result
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.model.event import (
    Completed,
    Released,
    Spent,
    ToolsOffered,
    TurnStarted,
)
from policyguard.model.outcome import Recorded
from policyguard.model.policy import Blame
from policyguard.model.tool_name import MCP_PREFIX

if TYPE_CHECKING:
    from policyguard.guard.calls.options import (
        CallContext,
        CheckOptions,
        RecordOptions,
        RunOptions,
    )

R = TypeVar("R")


class Session(SessionStatus, MarkableSession, SessionApprovals):
    """One agent's run: its calls are checked and recorded here. Opened by `Guard.session`.

    `close`, or leaving a `with` block, releases the session: the run may be resumed here or in
    another process. `end` says that the run is over. Inside a `with` block it is the session of
    functions decorated with `@guard.tool`.
    """

    __slots__ = ()

    def check(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        at: int | datetime | None = None,
        batch: str | None = None,
        tags: Mapping[str, Any] | None = None,
        server: str = "",
        hints: Mapping[str, bool] | None = None,
        estimate: Mapping[str, float] | None = None,
        call: str | None = None,
        definition: Mapping[str, Any] | None = None,
    ) -> Decision:
        """Decide whether a call may run, and count it if so: then report it with `record`.

        `at`: an aware `datetime` or nanoseconds since 1970 (UTC), by default now. `batch`: an id
        that the parallel calls of one message share. `tags` overlay the session's; undeclared ones
        are ignored, since a host may serve several policies. `server`: the tool server's name;
        `mcp__fs__read` names the tool `read` of server `fs`.
        `hints`: `read_only`, `destructive`, `idempotent`, `open_world`. `estimate`: tokens and cost
        to reserve, as `{"tokens": …, "cost": …}`. `call`: the host's own id of the call, by which
        `record` and `release` find it. `definition`: the tool as its server lists it, or as the
        model got it, for the policy's `pins`; an empty one says that the server does not list it.

        `TypeError` or `ValueError` for a wrong value, before anything is counted; a `call` that is
        in flight or looks like an id of our own (`c1`) is one. Arguments that are not plain JSON
        are the model's mistake: the call is refused.

        If the effect is *ask*, the guard's approver is called; if it approves, the call is checked
        again and that decision is returned. If it fails, the call stays refused, with the error in
        `errors`.
        """
        context: CallContext | None = None
        if batch or tags or server or hints or estimate or call:
            context = {
                "server": server,
                "batch": batch,
                "call": call,
                "tags": tags,
                "hints": hints,
                "estimate": estimate,
            }
        if (  # the common case
            context is definition is None
            and type(args) is dict
            and type(tool) is str
            and MCP_PREFIX not in tool
        ):
            pipeline, wall = self._pipeline, None
            clock = pipeline.steady_clock
            time = monotonic_ns() + clock.offset
            if time >= clock.next_sync or at is not None:
                time, wall = self._read_times(at)
            decision = pipeline.check(Attempt(tool, args.copy(), time, self._state, wall), True)
        else:
            decision = self._evaluate(True, tool, args, at, definition, **(context or {}))
        if decision.allowed or decision.effect is not Effect.ASK or self.guard._approver is None:
            return decision
        asked = ask(self.guard._approver, self, decision)
        if asked is not decision or not self._is_approved(decision):
            return asked
        return self._evaluate(True, tool, args, at, definition, **(context or {}))

    async def acheck(
        self, tool: str, args: Mapping[str, Any] | None = None, **options: Unpack[CheckOptions]
    ) -> Decision:
        """Check as `check` does, without blocking the event loop for a store or an approver.

        If the caller is cancelled meanwhile, an admitted call is released: it has not begun.
        """
        guard = self.guard
        admit = partial(self._evaluate, True, tool, args, **options)
        decision = await run_blocking(guard, admit, self._release_unused)
        if decision.allowed or decision.effect is not Effect.ASK or guard._approver is None:
            return decision
        asked = await ask_async(guard._approver, self, decision)
        if asked is not decision:
            return asked
        if not await run_blocking(guard, partial(self._is_approved, decision)):
            return decision
        return await run_blocking(guard, admit, self._release_unused)

    def _release_unused(self, decision: Decision) -> None:
        if decision.allowed:
            self.release(decision)

    def check_batch(
        self, calls: Iterable[tuple[str, Mapping[str, Any]]], *, batch: str
    ) -> list[Decision]:
        """Check the calls of one message, each a tool and its arguments, before any of them runs.

        With `batch: all_or_none` in the policy, and one that is refused, all are: those that were
        admitted are released. `batch` is the id of the batch.
        """
        return check_batch(self, calls, batch)

    def preview(
        self, tool: str, args: Mapping[str, Any] | None = None, **options: Unpack[CheckOptions]
    ) -> Decision:
        """Decide as `check` would, and change nothing. The decision cannot be recorded."""
        return self._evaluate(False, tool, args, **options)

    def _evaluate(
        self,
        admit: bool,
        tool: str,
        args: Mapping[str, Any] | None,
        at: int | datetime | None = None,
        definition: Mapping[str, Any] | None = None,
        **context: Unpack[CallContext],
    ) -> Decision:
        time, wall = self._read_times(at, go_on=admit)
        tool, invalid_reason = validate.text("tool", tool), ""
        try:
            attempt = Attempt(tool, {} if args is None else {**args}, time, self._state, wall)
        except TypeError:
            attempt = Attempt(tool, {}, time, self._state, wall)
            invalid_reason = f"they are of type `{type(args).__name__}`, not an object"
        if context:
            set_context(attempt, self.guard._evaluator.check_tags, **context)
        attempt.split_tool_name()
        pins = self.guard._evaluator.pins
        if definition is not None and pins is not None:
            described = validate.mapping("definition", definition)
            attempt.pins = pins.describe(attempt.server, attempt.tool, described)
        requires_new = bool(attempt.host_call)
        return self._pipeline.check(attempt, admit, invalid_reason, requires_new=requires_new)

    def record(
        self,
        decision: Decision | str,
        *,
        result: Any = None,
        error: BaseException | str | None = None,
        exit_code: int | None = None,
        status: int | None = None,
        retry_after: float | timedelta | None = None,
        blame: Blame | None = None,
        duration: float | timedelta | None = None,
        tokens: int | None = None,
        cost: float | None = None,
        score: float | None = None,
        meta: Mapping[str, Any] | None = None,
        at: int | datetime | None = None,
    ) -> Recorded:
        """Report the result of an admitted call, named by its decision, its id or the host's id.

        `result`: what the tool returned (text, or JSON-like). `error`: what it raised or printed
        instead; any text is a failure, even an empty one. An exception that is not an `Exception`
        (`CancelledError`, `KeyboardInterrupt`) says that the call was stopped from outside: it is
        recorded as cancelled, and keeps what it was charged. A non-zero `exit_code` or an HTTP
        `status` of 400 or more is a failure too. `duration` and `retry_after`: seconds, or a
        `timedelta`. `blame` overrides the policy's. A result that was reported before, or of a
        refused call, is classified and does not count (`Recorded.counted`).

        A `result` may be an MCP tool result (a mapping or an object with `content` and `isError`):
        its text, error flag and `_meta` are read, except keys that only the host may set
        (`outcomes.meta.harness`); the host sets these in `meta`.

        `UnknownCallError` (a `LookupError`) for a call that the session does not know. `TypeError`
        or `ValueError` for a wrong value; the call may then be reported again.
        """
        is_cancelled = False
        if error is not None and type(error) is not str:
            validate.error_value("error", error)
            is_cancelled = isinstance(error, BaseException) and not isinstance(error, Exception)
            error = error_text(error)
        text, failed = result, error is not None
        pending, parsed = False, None
        host_meta = validate.mapping("meta", meta) if meta else {}
        if type(result) is not str:
            parsed = parse_result(result, self.guard._evaluator.outcome_classifier.harness_keys)
            text, failed, pending = parsed.text, failed or parsed.failed, parsed.pending
            host_meta = {**parsed.meta, **host_meta}
        pipeline, wall = self._pipeline, None
        clock = pipeline.steady_clock
        time = monotonic_ns() + clock.offset
        if time >= clock.next_sync or at is not None:
            time, wall = self._read_times(at)
        report = Completed(
            # Positional: msgspec is slow at keywords, and CPython at many of them.
            self.id,
            time,
            decision.id
            if type(decision) is Decision and decision.session == self.id
            else self._resolve_call(decision),
            False if failed and not is_cancelled else None,
            "explicit",
            text,
            error,
            None if exit_code is None else validate.integer("exit_code", exit_code),
            None if status is None else validate.integer("status", status),
            None if retry_after is None else validate.duration("retry_after", retry_after),
            None if duration is None else validate.duration("duration", duration),
            None if tokens is None else validate.integer("tokens", tokens),
            None if cost is None else validate.usage("cost", cost),
            None if score is None else validate.number("score", score),
            host_meta,
        )
        if blame or is_cancelled or pending or wall is not None:
            report = replace(
                report,
                blame=validate.choice("blame", blame, get_args(Blame)) if blame else "",
                state="cancelled" if is_cancelled else "pending" if pending else "",
                wall=wall,
            )
        return pipeline.complete(report, decision, parsed)

    async def arecord(
        self, decision: Decision | str, **reported: Unpack[RecordOptions]
    ) -> Recorded:
        """Record as `record` does, without blocking the event loop for a store."""
        return await run_blocking(self.guard, partial(self.record, decision, **reported))

    def _resolve_call(self, decision: Decision | str) -> str:
        """Return the own id of a call that is to be reported."""
        if not isinstance(decision, Decision):
            id_ = validate.call_id("decision", decision)
            return self._pipeline.resolve_host_call(id_) or id_
        if decision.session != self.id:  # its calls have the same ids
            raise ValueError(
                f"call `{decision.id}` is of session `{decision.session}`, not of this"
            )
        return decision.id

    def release(self, decision: Decision | str) -> None:
        """Undo an admission: the call never began to run, and no longer counts.

        Report one that began and was stopped with `record(decision, error=…)`. Nothing happens if
        the session is closed. `UnknownCallError` or `ValueError` for a call of another session.
        """
        call = self._resolve_call(decision)
        released = Released(session=self.id, call=call, **self._times())
        self._pipeline.release(released, decision)

    def turn(self) -> None:
        """Begin a new turn: it lifts a halt, and counts per turn start again.

        `ClosedError` if the session is closed.
        """
        self._pipeline.fold(TurnStarted(session=self.id, **self._times()))

    def offer(self, tools: Iterable[str]) -> None:
        """Say which tools the agent has from now on, as the model calls them.

        Calls of any other tool are refused. The first refusal lists the tools, each names the one
        that was probably meant. `ClosedError` if the session is closed.
        """
        names = validate.tool_names(tools)
        offered = self._state.offered
        if offered is None or offered.names != names:
            self._pipeline.fold(ToolsOffered(session=self.id, tools=names, **self._times()))

    def spend(self, *, tokens: int = 0, cost: float = 0.0, model_calls: int = 0) -> None:
        """Count tokens and cost that the model used between calls, and how often it was called.

        `ValueError` for a negative or infinite value, `ClosedError` if the session is closed.
        """
        tokens = validate.integer("tokens", validate.amount("tokens", tokens))
        cost = validate.amount("cost", cost)
        calls = validate.integer("model_calls", validate.amount("model_calls", model_calls))
        self._pipeline.spend(
            Spent(self.id, tokens=tokens, cost=cost, model_calls=calls, **self._times())
        )

    def run(
        self,
        tool: str,
        args: Mapping[str, Any] | None,
        fn: Callable[[], R],
        **options: Unpack[RunOptions],
    ) -> R:
        """Check a call, run `fn`, record its result, and return it.

        Options: `server`, `batch` and `call` as in `check`, `cost` and `tokens` as in `record`.
        A refused call raises `CallRefused`; what `fn` raises is recorded as the call's error and
        raised. Advice is appended to a result that is text, or an MCP result with `content`.
        `TypeError` if `fn` is not a function, before anything is counted.

        If the policy limits the call's time, `fn` runs in a thread of its own, and a call that
        runs out of time is recorded as failed and raises `ToolTimeoutError`. The thread goes on:
        it cannot be stopped. A `CallEnded` event reports its end.

        A call that ends with `KeyboardInterrupt`, `SystemExit` or the like is recorded as
        cancelled: it keeps what it was charged.
        """
        from policyguard.guard.tools.runner import run  # asyncio, which a check does not need

        return run(self, tool, args, fn, **options)

    async def arun(
        self,
        tool: str,
        args: Mapping[str, Any] | None,
        fn: Callable[[], Awaitable[R]],
        **options: Unpack[RunOptions],
    ) -> R:
        """Do the same as `run` with an async `fn`. A call that is cancelled is recorded as such.

        Whether `fn` is async shows only when it has run: if it returned nothing to await, the call
        is recorded as a failure of the harness, and raises `TypeError`.

        If the policy limits the call's time, `fn` is awaited in a task of its own, which is
        cancelled when the time is over, and has `bounds.cleanup` to end.
        """
        from policyguard.guard.tools.runner import arun  # asyncio, which a check does not need

        return await arun(self, tool, args, fn, **options)
