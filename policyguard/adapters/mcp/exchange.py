"""What one client and one server say to each other, with what the policy changes in it.

Both transports use it. It touches `tools/call` and its response, `tools/list`, cancellations and
tasks; everything else passes as it is.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from policyguard.adapters.mcp.call_sessions import CallSession
from policyguard.adapters.mcp.clients import Client, run_of
from policyguard.adapters.mcp.guarded_server import Admitted, AskError, GuardedServer
from policyguard.adapters.mcp.list_request import AskServer
from policyguard.adapters.mcp.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PROTOCOL_VERSION,
    SUBSCRIPTION_ID,
    Message,
    error_response,
    is_request,
    is_response,
    key_of,
    meta,
    notification,
    params,
    result_response,
)
from policyguard.adapters.mcp.pending import Passage, Pending, Sender, pop_unanswered
from policyguard.adapters.mcp.results import tool_error
from policyguard.adapters.mcp.runs import Runs
from policyguard.guard.host_log import log_failure

_INVALID_PARAMS = -32602
_TASK_METHODS = ("tasks/get", "tasks/result", "tasks/cancel")
_LIST_CHANGED = "notifications/tools/list_changed"
_MAX_OTHERS = 1024
"""Requests beside calls that may have no response yet."""


class Exchange:
    """The messages between a client and a server, in both directions.

    With `notifies` there is a way for notifications of the proxy's own at times. `peer` is where
    the client is, `run` what names its run.
    """

    def __init__(
        self,
        server: GuardedServer,
        runs: Runs,
        *,
        client: Client | None = None,
        peer: str = "",
        run: str = "",
        notifies: bool = True,
    ) -> None:
        self.server = server
        self.client = client or Client()
        self.send: Sender | None = None
        """Sends notifications of the proxy's own, if there is a way."""
        self.ask_server: AskServer | None = None
        self._runs = runs
        self._peer, self._run = peer, run
        self._notifies = notifies
        self._max_pending = server.limits.max_calls + server.limits.max_waiting + _MAX_OTHERS
        self._pending: dict[object, Pending] = {}
        self._asked: dict[str, asyncio.Future[object]] = {}
        self._subscriptions: dict[object, Any] = {}
        self._listening: dict[str, Callable[[], None]] = {}

    def from_client(
        self, message: Message, send: Sender | None = None
    ) -> Passage | Coroutine[Any, Any, Passage]:
        """Return what becomes of a client's message: at once, or after a while.

        `send` sends what belongs to this request, such as a form, to the client.
        """
        if is_response(message):
            waiting = self._asked.get(message["id"]) if isinstance(message["id"], str) else None
            if waiting is None:
                return Passage(to_server=message)
            if not waiting.done():
                waiting.set_result(message.get("result"))
            return Passage()
        if not is_request(message):
            return self._pass_notification(message)
        key = key_of(message["id"])
        if key in self._pending:
            text = "a request with this id has no response yet"
            return Passage(to_client=error_response(message["id"], INVALID_REQUEST, text))
        if len(self._pending) >= self._max_pending and not self._forget_unanswered():
            text = f"{self._max_pending} requests have no response yet"
            return Passage(to_client=error_response(message["id"], INVALID_REQUEST, text))
        method, found = str(message.get("method")), params(message)
        client = self.client
        if method == "initialize":
            client = self.client = Client.from_handshake(found)
        elif PROTOCOL_VERSION in meta(found):
            client = Client.from_meta(meta(found))
        pending = self._pending[key] = Pending(message["id"], method, found, client, send)
        if method == "tools/call":
            return self._pass_call(key, pending, message)
        if method == "tools/list":
            return self._pass_list(pending, message)
        if method == "subscriptions/listen":
            self._subscriptions[key] = message["id"]
            return self._pass_list(pending, message)
        return Passage(to_server=message)

    def _pass_notification(self, message: Message) -> Passage:
        if message.get("method") == "tools/call":  # some server might run it all the same
            self.server.log.warn("dropped a call without an id: nothing could answer it")
            return Passage()
        if message.get("method") != "notifications/cancelled":
            return Passage(to_server=message)
        found = params(message)
        key = key_of(found.get("requestId"))
        pending = self._pending.get(key)
        if pending is None:
            return Passage(to_server=message)
        self._subscriptions.pop(key, None)
        if pending.call is not None:
            # The response may have been sent already, so the request stays.
            reason = str(found.get("reason") or "the client cancelled the call")
            self.server.abandon(pending.call, asyncio.CancelledError(reason))
            self._free(pending)
        elif pending.method == "tools/call":  # the server has never seen it
            del self._pending[key]
            if pending.task is not None:
                pending.task.cancel()
            return Passage()
        pending.may_be_unanswered = True
        return Passage(to_server=message)

    def _forget_unanswered(self) -> bool:
        """Forget the oldest request to which no response need come; return whether there is one."""
        pending = pop_unanswered(self._pending)
        if pending is not None and pending.call is not None:
            self.server.abandon(pending.call, asyncio.CancelledError("the client has gone"))
        return pending is not None

    async def _open_session(self, pending: Pending) -> CallSession:
        run = self._run or run_of(meta(pending.params))
        session = await self._runs.open(pending.client, run, self._peer)
        if self._notifies and session.id not in self._listening:
            self._listening[session.id] = self.server.changes.listen(
                session, self._tell_list_changed
            )
        return session

    async def _pass_list(self, pending: Pending, message: Message) -> Passage:
        try:
            pending.session = await self._open_session(pending)
        except Exception:  # noqa: BLE001 - calls are refused; the list is as the server gives it
            log_failure(f"no session for the tools of `{self.server.name}`")
        return Passage(to_server=message)

    async def _pass_call(self, key: object, pending: Pending, message: Message) -> Passage:
        if self._pending.get(key) is not pending:  # cancelled before it began
            return Passage()
        pending.task = asyncio.current_task()
        try:
            refused = await self._take_slot(pending) or await self._admit(pending)
        except asyncio.CancelledError:  # by its client, which may have left
            self._pending.pop(key, None)
            self._free(pending)
            raise
        pending.task = None
        if refused is not None:
            self._pending.pop(key, None)
            self._free(pending)
            return Passage(to_client=refused)
        if pending.passed is pending.params:
            return Passage(to_server=message)
        return Passage(to_server={**message, "params": pending.passed})

    async def _take_slot(self, pending: Pending) -> Message | None:
        """Wait until a call may run; return the response to one that may neither run nor wait."""
        if not isinstance(pending.params.get("name"), str):
            text = "`params.name` is the name of a tool, a text"
            return error_response(pending.id, _INVALID_PARAMS, text)
        slots, limits = self.server.slots, self.server.limits
        if not slots.try_take():
            if slots.is_full:
                text = (
                    f"This call was not run: {limits.max_calls} calls run and "
                    f"{limits.max_waiting} wait. Wait for their results, then call again."
                )
                refused = tool_error(text, is_modern=pending.client.is_modern)
                return result_response(pending.id, refused)
            await slots.take()
        pending.has_slot = True
        return None

    async def _admit(self, pending: Pending) -> Message | None:
        """Ask the policy about a call; return the response to one that does not run."""
        server, is_modern = self.server, pending.client.is_modern
        pending.passed = pending.params
        await server.tools.learn(self.ask_server, pending.params)
        try:
            session = pending.session = await self._open_session(pending)
        except Exception as error:  # noqa: BLE001 - no failure of ours may let a call run
            log_failure(f"no session for a call of `{server.name}`")
            if server.sessions.allows_on_error:
                return None
            text = f"policyguard could not check this call ({type(error).__name__}: {error})"
            return result_response(pending.id, tool_error(text, is_modern=is_modern))
        ask = None if pending.send is None else partial(self._ask, pending.send)
        admitted = await server.admit(session, pending.client, pending.params, ask)
        server.changes.notify(session)
        if not isinstance(admitted, Admitted):
            return result_response(pending.id, admitted)
        pending.call, pending.passed = admitted.call, admitted.params
        return None

    def _free(self, pending: Pending) -> None:
        if pending.has_slot:
            pending.has_slot = False
            self.server.slots.give_back()

    async def _ask(self, send: Sender, form: dict[str, Any]) -> object:
        """Show the client's user a form; return the answer. Raises `AskError`."""
        id_ = f"policyguard-{secrets.token_hex(8)}"
        waiting: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._asked[id_] = waiting
        try:
            request = {"jsonrpc": "2.0", "id": id_, "method": "elicitation/create", "params": form}
            send(request)
            answer = await waiting
        except asyncio.CancelledError:
            reason = {"requestId": id_, "reason": "the call was cancelled"}
            send(notification("notifications/cancelled", reason))
            raise
        finally:
            del self._asked[id_]
        if answer is None:
            raise AskError("the client returned an error")
        return answer

    def from_server(self, message: Message) -> Message | None:
        """Return a server's message as the client may see it; None if not at all."""
        name, log = self.server.name, self.server.log
        if "method" in message and ("result" in message or "error" in message):
            log.warn(f"dropped a message of `{name}` that is request and response in one")
            return None
        if is_response(message):
            try:
                return self._pass_response(message)
            except Exception as error:  # noqa: BLE001 - as above: nothing unchecked is passed on
                log_failure(f"a response of `{name}` was not passed on")
                text = f"policyguard failed to pass the response on ({type(error).__name__})"
                return error_response(message["id"], INTERNAL_ERROR, text)
        if not isinstance(message.get("method"), str):
            log.warn(f"dropped what `{name}` wrote: no request, response or notification")
            return None
        if message["method"] == "notifications/tasks/status":
            self.server.note_task(params(message))
        return message

    def _pass_response(self, message: Message) -> Message | None:
        id_ = message["id"]
        pending = self._pending.pop(key_of(id_), None)
        if pending is None:
            if id_ is None:
                return message
            self.server.log.warn(f"dropped a response of `{self.server.name}` to no request")
            return None
        self._free(pending)
        method = pending.method
        if method == "tools/call":
            if pending.call is None:
                return message
            edited = self.server.finish(pending.call, pending.params, message)
            self.server.changes.notify(pending.call.session)
            return edited
        if method == "tools/list":
            return self._edit_list(pending, message)
        if method in _TASK_METHODS:
            return self.server.finish_task(method, pending.params, message)
        if method in ("initialize", "server/discover"):
            return self.server.changes.declare(message)
        if method == "subscriptions/listen":
            self._subscriptions.pop(key_of(id_), None)
        return message

    def _edit_list(self, pending: Pending, message: Message) -> Message:
        result = message.get("result")
        if not isinstance(result, dict):
            return message
        is_first = not pending.params.get("cursor")
        try:
            edited = self.server.tools.edit(result, pending.session, is_first=is_first)
        except Exception as error:  # noqa: BLE001 - no failure of ours may show what is to be hidden
            log_failure(f"the tools of `{self.server.name}` were not checked")
            if self.server.sessions.allows_on_error:
                return message
            text = f"policyguard could not check the tools ({type(error).__name__}: {error})"
            return error_response(message["id"], INTERNAL_ERROR, text)
        return message if edited is result else {**message, "result": edited}

    def _tell_list_changed(self) -> None:
        if self.send is None:
            return
        if not self.client.is_modern and self.client.protocol:
            self.send(notification(_LIST_CHANGED))
        for id_ in [*self._subscriptions.values()]:
            self.send(notification(_LIST_CHANGED, {"_meta": {SUBSCRIPTION_ID: id_}}))

    def timeout_of(self, message: Message) -> float | None:
        """Return how many seconds the policy gives a call that goes to the server."""
        pending = self._pending.get(key_of(message.get("id")))
        decision = None if pending is None or pending.call is None else pending.call.decision
        return None if decision is None else decision.timeout

    def time_out(self, message: Message) -> Passage:
        """End a call whose time is over: the client gets an error, the server a cancellation."""
        key = key_of(message["id"])
        pending = self._pending.get(key)
        if pending is None or pending.call is None:
            return Passage()
        decision = pending.call.decision
        assert decision is not None  # noqa: S101 - it has a timeout
        text = f"the call took longer than {decision.timeout:g} s ({decision.timeout_by})"
        advice = self.server.abandon(pending.call, TimeoutError(text))
        del self._pending[key]
        self._free(pending)
        shown = "\n\n".join(filter(None, (text, advice)))
        answer = tool_error(shown, is_modern=pending.client.is_modern)
        cancelled = {"requestId": message["id"], "reason": text}
        cancellation = notification("notifications/cancelled", cancelled)
        return Passage(to_server=cancellation, to_client=result_response(pending.id, answer))

    def fail(self, message: Message, reason: str, code: int) -> Message | None:
        """Return the error of a request that did not get through; None if it waits for none."""
        key = key_of(message.get("id"))
        pending = self._pending.pop(key, None)
        if pending is None:
            return None
        return self._fail_pending(pending, reason, code)

    def fail_all(self, reason: str, code: int) -> list[Message]:
        """Return the errors of all requests without a response: the server has gone."""
        pending, self._pending = [*self._pending.values()], {}
        return [self._fail_pending(one, reason, code) for one in pending]

    def _fail_pending(self, pending: Pending, reason: str, code: int) -> Message:
        self._free(pending)
        if pending.task is not None:
            pending.task.cancel()
        if pending.call is not None:
            advice = self.server.abandon(pending.call, reason, by_harness=True)
            reason = "\n\n".join(filter(None, (reason, advice)))
        return error_response(pending.id, code, reason)

    def listen_with(self, send: Sender | None) -> None:
        """Send notifications of the proxy's own by this from now on; None: by nothing."""
        self.send, self._notifies = send, True

    def notify_later(self) -> None:
        """Note changes for a client that will open a stream for notifications."""
        self._notifies = True

    def let_go(self, message: Message) -> None:
        """Free the slot of a call whose client has gone, and may come back for the result."""
        pending = self._pending.get(key_of(message.get("id")))
        if pending is not None:
            self._free(pending)
            pending.may_be_unanswered = True

    def may_edit_result(self, message: Message) -> bool:
        """Whether a result rule may edit what comes of a call that has no response yet."""
        pending = self._pending.get(key_of(message.get("id")))
        if pending is None or pending.call is None or pending.call.decision is None:
            return False
        tool = pending.call.decision.tool
        return self.server.sessions.may_edit_results(pending.call.session, tool)

    def is_open(self, message: Message) -> bool:
        """Whether a request has no response yet."""
        return is_request(message) and key_of(message["id"]) in self._pending

    def close(self, reason: str) -> None:
        """End the exchange: the client has gone, and what it asked for is cancelled."""
        for stop in self._listening.values():
            stop()
        self._listening.clear()
        for pending in self._pending.values():
            self._free(pending)
            if pending.task is not None:
                pending.task.cancel()
            if pending.call is not None:
                self.server.abandon(pending.call, asyncio.CancelledError(reason))
        self._pending.clear()
