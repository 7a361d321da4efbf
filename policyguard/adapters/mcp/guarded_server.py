"""The calls of one server's tools under the policy, whatever brings them."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from policyguard.adapters.mcp.approvals import (
    SuspendedCalls,
    ask_by_result,
    build_form,
    identify_call,
    read_answer,
    restore_state,
)
from policyguard.adapters.mcp.bounded_log import BoundedLog
from policyguard.adapters.mcp.call_sessions import CallSession, CallSessions
from policyguard.adapters.mcp.clients import Client, call_of
from policyguard.adapters.mcp.list_changes import ListChanges
from policyguard.adapters.mcp.messages import (
    INTERNAL_ERROR,
    Message,
    error_response,
    meta,
    task_id,
    without_contradiction,
)
from policyguard.adapters.mcp.results import (
    NOTES,
    edit_error,
    edit_result,
    refuse,
    tool_error,
)
from policyguard.adapters.mcp.settings import ProxyLimits
from policyguard.adapters.mcp.slots import CallSlots
from policyguard.adapters.mcp.tool_lists import ToolList
from policyguard.adapters.mcp.usage import read_usage
from policyguard.guard.approvals.questions import redact_arguments
from policyguard.guard.host_log import log_failure, warn
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.model.errors import PolicyguardError
from policyguard.model.tool_name import join_tool_name

_MAX_TASKS = 4096
"""Tasks of a server whose calls are remembered; the oldest are forgotten first."""

_SHOWN = ("content", "structuredContent")
"""What of a tool's result is shown to a model."""

_URL_ELICITATION = -32042
"""The error that asks the client to open an address and to repeat the call (2025-11-25)."""

Asker = Callable[[dict[str, Any]], Awaitable[object]]
"""Shows the client's user a form and returns the answer. Raises `AskError`."""


class AskError(Exception):
    """The client did not answer the form."""


class OpenCall(msgspec.Struct, eq=False):
    """A call that was admitted, until its result is recorded.

    `decision` is None for one that runs unchecked, since policyguard failed and the policy allows
    it then. `state` is what the server gave the client to repeat the call with.
    """

    session: CallSession
    decision: Decision | None
    client: Client
    started: float
    state: str | None = None


class AskedCall(msgspec.Struct, eq=False):
    """A call that waits for the user's answer."""

    session: CallSession
    decision: Decision


class Admitted(msgspec.Struct, eq=False):
    """A call that goes to the server, with these parameters."""

    call: OpenCall
    params: dict[str, Any]


class GuardedServer:
    """One server behind the proxy: its tools, and the calls of them under the policy."""

    def __init__(self, name: str, sessions: CallSessions, limits: ProxyLimits) -> None:
        self.name = name
        self.sessions = sessions
        self.limits = limits
        self.tools = ToolList(name, sessions)
        self.log = BoundedLog()
        self.slots = CallSlots(limits.max_calls, limits.max_waiting)
        self._suspended: SuspendedCalls[OpenCall | AskedCall] = SuspendedCalls()
        self._tasks: OrderedDict[str, OpenCall] = OrderedDict()
        outcome_meta = sessions.guard._evaluator.result_meta
        self._hidden_keys = (*outcome_meta.strip, *outcome_meta.harness)
        self._meta = outcome_meta
        self.changes = ListChanges(name, sessions)

    async def admit(
        self, session: CallSession, client: Client, params: dict[str, Any], ask: Asker | None
    ) -> Admitted | dict[str, Any]:
        """Decide on a `tools/call`: return what goes to the server, or the result for the client.

        `ask` reaches the client's user in a session; None if nothing does.
        """
        try:
            return await self._admit(session, client, params, ask)
        except Exception as error:  # noqa: BLE001 - no failure of ours may let a call run
            return self._fail(session, client, params, error)

    async def _admit(
        self, session: CallSession, client: Client, params: dict[str, Any], ask: Asker | None
    ) -> Admitted | dict[str, Any]:
        state = params.get("requestState")
        if isinstance(state, str) and SuspendedCalls.is_state(state):
            identity = identify_call(self.name, session.id, params)
            resumed = self._suspended.resume(state, identity)
            if isinstance(resumed, OpenCall):
                return Admitted(resumed, restore_state(params, resumed.state))
            if resumed is None:
                text = (
                    "This call was not run: the answer it carries is of another call, too old, or "
                    "was used before. Call the tool again without it."
                )
                return tool_error(text, is_modern=client.is_modern)
            responses = params.get("inputResponses")
            answer = responses.get(NOTES) if isinstance(responses, dict) else None
            params = restore_state(params, None)
            if not self._answer(resumed, client, answer):
                return refuse(resumed.decision, is_modern=client.is_modern)
        decision = self._check(session, params)
        if decision.allowed:
            return self._open(session, decision, client, params)
        if decision.effect is Effect.ASK:
            return await self._ask(session, client, params, decision, ask)
        return refuse(decision, is_modern=client.is_modern)

    async def _ask(
        self,
        session: CallSession,
        client: Client,
        params: dict[str, Any],
        decision: Decision,
        ask: Asker | None,
    ) -> Admitted | dict[str, Any]:
        asked = AskedCall(session, decision)
        redact = self.sessions.guard._state.redact
        form = build_form(decision, redact_arguments(params.get("arguments") or {}, redact))
        if client.is_modern and client.has_forms:
            identity = identify_call(self.name, session.id, params)
            state, forgotten = self._suspended.suspend(asked, identity)
            self._forget(forgotten)
            return ask_by_result(form, state)
        if ask is not None and client.has_forms and not client.is_modern:
            try:
                answer = await ask(form)
            except AskError:
                answer = None
            if self._answer(asked, client, answer):
                decision = self._check(session, params)
                if decision.allowed:
                    return self._open(session, decision, client, params)
        return refuse(decision, is_modern=client.is_modern)

    def _answer(self, asked: AskedCall, client: Client, answer: object) -> bool:
        """Approve or deny a call as its user's answer says; whether it is decided anew now."""
        says_yes = read_answer(answer)
        by = f"the user of {client.name or 'an MCP client'}"
        if says_yes is None:
            return False
        say = asked.session.approve if says_yes else asked.session.deny
        return say(asked.decision, by=by)

    def _check(self, session: CallSession, params: dict[str, Any]) -> Decision:
        tool, arguments = params["name"], params.get("arguments")
        call = call_of(meta(params))
        if call is not None:
            call = f"mcp:{call}"
            if call in session.in_flight or self.sessions.has_seen(session.id, call):
                call = None  # a name that is not of one call
        return self.sessions.check(
            session,
            join_tool_name(tool, self.name),
            {} if arguments is None else arguments,
            call,
            may_be_repeated=False,
            server=self.name,
            hints=self.tools.hints_of(tool) or None,
            definition=self.tools.pinned_definition(tool),
        )

    def _open(
        self,
        session: CallSession,
        decision: Decision | None,
        client: Client,
        params: dict[str, Any],
    ) -> Admitted:
        return Admitted(OpenCall(session, decision, client, time.monotonic()), params)

    def _fail(
        self, session: CallSession, client: Client, params: dict[str, Any], error: Exception
    ) -> Admitted | dict[str, Any]:
        reason = f"policyguard could not check this call ({type(error).__name__}: {error})"
        if isinstance(error, PolicyguardError):
            warn(reason)
        else:
            log_failure(f"a call of `{self.name}` was not checked")
        if self.sessions.allows_on_error:
            return self._open(session, None, client, params)
        return tool_error(reason, is_modern=client.is_modern)

    def finish(self, call: OpenCall, params: dict[str, Any], message: Message) -> Message:
        """Record the response to a call; return it as the client may see it.

        `params` are those that the client sent.
        """
        message = without_contradiction(message)
        if "error" in message:
            error = message["error"] if isinstance(message["error"], dict) else {}
            if error.get("code") == _URL_ELICITATION:
                self._release(call)
                return message
            return self._finish_error(call, message, error)
        result = message.get("result")
        if not isinstance(result, dict):
            text = f"the response of `{self.name}` has no result"
            self.abandon(call, text)
            return error_response(message["id"], INTERNAL_ERROR, text)
        message = self._keep_judged(call, message)
        # What a client shows is a result, whatever it is called.
        if result.keys().isdisjoint(_SHOWN):
            if result.get("resultType") == "input_required":
                return {**message, "result": self._suspend(call, params, result)}
            task = task_id(result)
            if task:
                self._tasks[task] = call
                if len(self._tasks) > _MAX_TASKS:
                    self._forget([self._tasks.popitem(last=False)[1]])
                return message
        edited = self.record(call, result)
        return message if edited is result else {**message, "result": edited}

    def _keep_judged(self, call: OpenCall, message: Message) -> Message:
        """Return a response; where its result may be edited, only what is judged of it.

        A client might read what the policy did not see: a repeated member's first value, or one
        beside the result.
        """
        decision = call.decision
        if decision is None or not self.sessions.may_edit_results(call.session, decision.tool):
            return message
        return {key: message[key] for key in ("jsonrpc", "id", "result") if key in message}

    def finish_task(self, method: str, params: dict[str, Any], message: Message) -> Message:
        """Record the result of a task, if this response brings it; return it for the client."""
        message = without_contradiction(message)
        result = message.get("result")
        call = self._tasks.get(str(params.get("taskId")))
        if call is None:
            return self._finish_unknown_task(message)
        if "error" in message:
            error = message["error"] if isinstance(message["error"], dict) else {}
            return self._finish_error(call, message, error) if method == "tasks/result" else message
        if not isinstance(result, dict):
            return error_response(message["id"], INTERNAL_ERROR, "the response has no result")
        message = self._keep_judged(call, message)
        if method == "tasks/result" or not result.keys().isdisjoint(_SHOWN):
            edited = self.record(call, result)
            return message if edited is result else {**message, "result": edited}
        return self._note_status(call, message, result)

    def _finish_unknown_task(self, message: Message) -> Message:
        """Return a response about a task that is not known here, or not any more.

        Nothing tells which result rules cover its call, so with any of them it shows no result.
        """
        result = message.get("result")
        if self.sessions.guard._evaluator.result_rules is None or not isinstance(result, dict):
            return message
        inner = result.get("result")
        if result.keys().isdisjoint(_SHOWN) and not isinstance(inner, dict):
            return message
        text = "the result is withheld: the call of this task is not known to the policy"
        return error_response(message["id"], INTERNAL_ERROR, text)

    def note_task(self, params: dict[str, Any]) -> None:
        """Note what the server tells of a task without being asked."""
        call = self._tasks.get(str(params.get("taskId")))
        if call is not None:
            self._note_status(call, {}, {**params, "result": None})

    def _note_status(self, call: OpenCall, message: Message, result: dict[str, Any]) -> Message:
        """Record a task that has ended by its status, or with its result in it."""
        status, inner = result.get("status"), result.get("result")
        if isinstance(inner, dict):
            edited = self.record(call, inner)
            if edited is not inner:
                return {**message, "result": {**result, "result": edited}}
        elif status == "cancelled":
            self.abandon(call, asyncio.CancelledError("the task was cancelled"))
        elif status == "failed":
            error = result.get("error")
            text = error.get("message") if isinstance(error, dict) else None
            self.abandon(call, str(text or result.get("statusMessage") or "the task failed"))
        return message

    def record(self, call: OpenCall, result: dict[str, Any]) -> dict[str, Any]:
        """Record a call's result; return it as the policy leaves it."""
        if call.decision is None:
            return result
        try:
            recorded = self.sessions.record(
                call.session,
                call.decision.id,
                result=result,
                duration=time.monotonic() - call.started,
                **read_usage(meta(result), self._meta),
            )
            return edit_result(result, recorded, self._hidden_keys)
        except Exception as error:  # noqa: BLE001 - no failure of ours may show what is to be hidden
            log_failure(f"a result of `{self.name}` was not recorded")
            if self.sessions.allows_on_error:
                return result
            text = (
                "The call has run, but its result is withheld: policyguard could not check it "
                f"({type(error).__name__}: {error})."
            )
            return tool_error(text, is_modern=call.client.is_modern)

    def _finish_error(self, call: OpenCall, message: Message, error: dict[str, Any]) -> Message:
        if call.decision is None:
            return message
        try:
            recorded = self.sessions.record(
                call.session,
                call.decision.id,
                error=str(error.get("message") or ""),
                duration=time.monotonic() - call.started,
            )
            edited = edit_error(error, recorded)
        except Exception:  # noqa: BLE001 - as in `record`
            log_failure(f"an error of `{self.name}` was not recorded")
            if self.sessions.allows_on_error:
                return message
            edited = {"code": error.get("code", INTERNAL_ERROR), "message": "the error is withheld"}
        return message if edited is error else {**message, "error": edited}

    def abandon(
        self, call: OpenCall, error: BaseException | str, *, by_harness: bool = False
    ) -> str:
        """Record that a call has no result: cancelled, or failed; return the advice on it."""
        if call.decision is None:
            return ""
        try:
            recorded = self.sessions.record(
                call.session,
                call.decision.id,
                error=error,
                blame="harness" if by_harness else None,
                duration=time.monotonic() - call.started,
            )
        except Exception:  # noqa: BLE001 - the call is over all the same
            log_failure(f"the end of a call of `{self.name}` was not recorded")
            return ""
        return recorded.advice

    def _release(self, call: OpenCall) -> None:
        if call.decision is not None:
            call.session.release(call.decision)

    def _suspend(
        self, call: OpenCall, params: dict[str, Any], result: dict[str, Any]
    ) -> dict[str, Any]:
        """Keep a call that the client will repeat with more input: it is not counted again."""
        state = result.get("requestState")
        call.state = state if isinstance(state, str) else None
        identity = identify_call(self.name, call.session.id, params)
        own_state, forgotten = self._suspended.suspend(call, identity)
        self._forget(forgotten)
        return {**result, "requestState": own_state}

    def _forget(self, calls: list[OpenCall] | list[OpenCall | AskedCall]) -> None:
        for call in calls:
            if isinstance(call, OpenCall):
                self.abandon(call, asyncio.CancelledError("the client did not repeat the call"))
