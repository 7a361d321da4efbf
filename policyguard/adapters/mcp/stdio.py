"""The proxy on standard input and output: it starts the server and pumps messages."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from policyguard.adapters.mcp.call_sessions import CallSessions, LocalSessions
from policyguard.adapters.mcp.exchange import Exchange
from policyguard.adapters.mcp.guarded_server import GuardedServer
from policyguard.adapters.mcp.lines import UnreadLine, open_input, open_output, read_lines
from policyguard.adapters.mcp.messages import (
    INVALID_REQUEST,
    PARSE_ERROR,
    SERVER_GONE,
    MalformedError,
    Message,
    as_judged,
    decode,
    encode,
    error_response,
    is_response,
)
from policyguard.adapters.mcp.pending import Passage
from policyguard.adapters.mcp.runs import Runs
from policyguard.adapters.mcp.server_process import ServerProcess
from policyguard.adapters.mcp.settings import ProxyLimits
from policyguard.guard.guard import Guard
from policyguard.guard.host_log import log_failure, warn
from policyguard.store.paths import resolve_store


class StdioSettings(NamedTuple):
    """How a server is run on stdio.

    `server` is its name for the policy, `session` an id for all that the client does.
    Of a `shared` session the service is the owner, and the other proxies of the client use it too.
    """

    policies: Sequence[str]
    store: str | Path | None
    command: Sequence[str]
    limits: ProxyLimits
    server: str = ""
    session: str = ""
    shared: bool = False


def run_stdio(settings: StdioSettings) -> int:
    """Run a server behind a policy until it or the client ends; return its exit code.

    Raises what `Guard.load` raises, and `OSError` if the server cannot be started.
    """
    return asyncio.run(_run(settings))


async def _run(settings: StdioSettings) -> int:
    process = await ServerProcess.start(settings.command)  # it starts while the policy is loaded
    try:
        own_store = None if settings.shared else settings.store
        with Guard.load([*settings.policies], store=own_store) as guard:
            server, runs = _guard_server(settings, guard)
            output = await open_output(sys.stdout.buffer)
            pump = StdioPump(server, runs, process, await open_input(sys.stdin.buffer), output)
            return await pump.run()
    finally:
        await process.stop()
        with contextlib.suppress(OSError, ValueError):
            os.set_blocking(sys.stdout.fileno(), True)


def _guard_server(settings: StdioSettings, guard: Guard) -> tuple[GuardedServer, Runs]:
    name, limits = settings.server or Path(settings.command[0]).stem, settings.limits
    cwd = str(Path.cwd())
    sessions: CallSessions
    if settings.shared:
        from policyguard.adapters.mcp.service_sessions import (
            Service,
            ServiceSessions,
            name_client_process,
        )

        service = Service(settings.policies, resolve_store(settings.store))
        sessions = ServiceSessions(guard, service)
        process = name_client_process()
        runs = Runs(sessions, fixed=settings.session, idle=limits.idle, cwd=cwd, unnamed=process)
    else:
        sessions = LocalSessions(guard)
        runs = Runs(sessions, fixed=settings.session, scope=name, idle=limits.idle, cwd=cwd)
    return GuardedServer(name, sessions, limits), runs


class StdioPump:
    """The messages between a client on two pipes and the process of a server."""

    def __init__(
        self,
        server: GuardedServer,
        runs: Runs,
        process: ServerProcess,
        client_input: asyncio.StreamReader,
        client_output: asyncio.StreamWriter,
    ) -> None:
        self._exchange = Exchange(server, runs)
        self._exchange.send = self._send_to_client
        self._exchange.ask_server = self._ask_server
        self._own: dict[object, asyncio.Future[Message]] = {}
        self._server = server
        self._process = process
        self._input, self._output = client_input, client_output
        self._max_bytes = server.limits.max_message
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Pump until the client or the server ends; return the server's exit code."""
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for signal_ in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_, stopped.set)
        up = asyncio.create_task(self._pump_up())
        down = asyncio.create_task(self._pump_down())
        end = asyncio.create_task(self._process.wait())
        stop = asyncio.create_task(stopped.wait())
        await asyncio.wait({up, down, end, stop}, return_when=asyncio.FIRST_COMPLETED)
        server_ended = end.done() or (down.done() and not up.done() and not stop.done())
        if server_ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await down  # what it said before it ended
        code = 0
        if server_ended:
            code = await self._process.stop()
            reason = f"the server `{self._server.name}` has ended (exit code {code})"
            warn(reason)
            for message in self._exchange.fail_all(reason, SERVER_GONE):
                self._send_to_client(message)
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._output.drain()
        else:
            self._exchange.close("the client has gone")
        for task in (up, down, end, stop, *self._tasks):
            task.cancel()
        await asyncio.gather(up, down, end, stop, *self._tasks, return_exceptions=True)
        self._output.close()
        return code if code >= 0 else 128 - code

    async def _pump_up(self) -> None:
        """Pass on what the client says."""
        async for line in read_lines(self._input, self._max_bytes):
            await self._output.drain()  # a client that reads nothing is read no further
            if isinstance(line, UnreadLine):
                text = f"the message has {line.size} bytes, at most {self._max_bytes} are passed on"
                self._send_to_client(error_response(line.find_id(), INVALID_REQUEST, text))
                continue
            try:
                messages = decode(line)
            except MalformedError as error:
                text = f"the message cannot be read: {error}"
                self._send_to_client(error_response(None, PARSE_ERROR, text))
                continue
            for message in messages:
                passage = self._exchange.from_client(message, self._send_to_client)
                raw = as_judged(line, message) if _is_one(messages, line) else encode(message)
                if isinstance(passage, Passage):
                    await self._deliver(passage, message, raw)
                else:
                    self._start(self._deliver_later(passage, message, raw))
                    await asyncio.sleep(0)  # what need not wait goes before the next message

    async def _deliver_later(self, passage: Any, message: Message, raw: bytes) -> None:
        try:
            await self._deliver(await passage, message, raw)
        except ConnectionError:
            pass  # the server has gone, which ends the pump
        except Exception:  # noqa: BLE001 - the client waits for an answer
            log_failure(f"a message to `{self._server.name}` was not passed on")
            text = "policyguard failed to pass the message on"
            failed = self._exchange.fail(message, text, SERVER_GONE)
            if failed is not None:
                self._send_to_client(failed)

    async def _deliver(self, passage: Passage, message: Message, raw: bytes) -> None:
        """Send on what becomes of a client's message; `raw` is the message itself."""
        if passage.to_client is not None:
            self._send_to_client(passage.to_client)
            await self._output.drain()
        if passage.to_server is None:
            return
        changed = passage.to_server is not message
        self._process.input.write((encode(passage.to_server) if changed else raw) + b"\n")
        timeout = self._exchange.timeout_of(message)
        if timeout is not None:
            asyncio.get_running_loop().call_later(timeout, self._time_out, message)
        await self._process.input.drain()

    def _time_out(self, message: Message) -> None:
        passage = self._exchange.time_out(message)
        if passage.to_client is not None:
            self._send_to_client(passage.to_client)
        if passage.to_server is not None:
            self._process.input.write(encode(passage.to_server) + b"\n")

    async def _pump_down(self) -> None:
        """Pass on what the server says."""
        async for line in read_lines(self._process.output, self._max_bytes):
            if isinstance(line, UnreadLine):
                self._refuse_long(line)
                continue
            try:
                messages = decode(line)
            except MalformedError:
                text = f"dropped what `{self._server.name}` wrote: no message on a line of its own"
                self._server.log.warn(text)
                text = f"the response of `{self._server.name}` cannot be read"
                self._refuse(UnreadLine.of(line), text)
                continue
            passed = [
                None if self._is_own(message) else self._exchange.from_server(message)
                for message in messages
            ]
            if _is_one(messages, line) and passed[0] is messages[0]:
                self._output.write(line + b"\n")
            else:
                for message in passed:
                    if message is not None:
                        self._send_to_client(message)
            await self._output.drain()

    async def _ask_server(self, message: Message) -> Message:
        """Send a request of the proxy's own; return the response."""
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._own[message["id"]] = answer
        try:
            self._process.input.write(encode(message) + b"\n")
            return await answer
        finally:
            self._own.pop(message["id"], None)

    def _is_own(self, message: Message) -> bool:
        """Whether a message answers a request of the proxy's own, which has the answer then."""
        id_ = message.get("id")
        answer = self._own.get(id_) if isinstance(id_, str) and is_response(message) else None
        if answer is None:
            return False
        if not answer.done():
            answer.set_result(message)
        return True

    def _refuse_long(self, line: UnreadLine) -> None:
        reason = (
            f"the response of `{self._server.name}` has {line.size} bytes, "
            f"at most {self._max_bytes} are passed on"
        )
        self._server.log.warn(f"a message of `{self._server.name}` is too long")
        self._refuse(line, reason)

    def _refuse(self, line: UnreadLine, reason: str) -> None:
        """Answer the request to which a line is the response that cannot be passed on."""
        failed = self._exchange.fail({"id": line.find_id()}, reason, SERVER_GONE)
        if failed is not None:
            self._send_to_client(failed)

    def _send_to_client(self, message: Message) -> None:
        if not self._output.is_closing():
            self._output.write(encode(message) + b"\n")

    def _start(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_one(messages: list[Message], line: bytes) -> bool:
    """Whether a line is one message for all readers: some end lines at a carriage return, too."""
    return len(messages) == 1 and b"\r" not in line[:-1]
