"""Which session of the guard a request of a client belongs to."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict

from policyguard.adapters.mcp.call_sessions import CallSession, CallSessions
from policyguard.adapters.mcp.clients import Client
from policyguard.adapters.sessions import SessionRequest

_MAX_RUNS = 4096
"""Runs that clients do not name, by client; the least recently used are forgotten first."""


class Runs:
    """The sessions of clients: what they name as their run, or one for each client.

    A run that its client does not name is over after `idle` seconds without a request. With a
    `fixed` id all requests are of that session. `scope` keeps apart the sessions of proxies that
    use the same store; `unnamed` is what to call runs that their client does not name.
    """

    def __init__(
        self,
        sessions: CallSessions,
        *,
        fixed: str = "",
        scope: str = "",
        idle: float,
        cwd: str | None = None,
        unnamed: str = "",
    ) -> None:
        self._sessions = sessions
        self._fixed, self._scope, self._idle = fixed, scope, idle
        self._unnamed: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()
        self._cwd, self._name_of_unnamed = cwd, unnamed

    async def open(self, client: Client, run: str, peer: str) -> CallSession:
        """Return the session of a request, opened or resumed if need be.

        `run` is what the client calls its run, `peer` tells clients that name none apart. Raises
        what `Guard.session` raises.
        """
        request = SessionRequest(
            session=self._fixed or self._identify(client, run, peer),
            agent="" if self._fixed else client.name,
            cwd=self._cwd,
        )
        session = self._sessions.get_open(request)
        if session is None:
            session = await asyncio.to_thread(self._sessions.open, request)
        return session

    def _identify(self, client: Client, run: str, peer: str) -> str:
        name = client.name or "client"
        run = run or self._name_of_unnamed
        if run:
            return "/".join(filter(None, ("mcp", self._scope, name, run)))
        now = time.monotonic()
        id_, used = self._unnamed.pop((name, peer), ("", now))
        if not id_ or now - used > self._idle:
            id_ = "/".join(filter(None, ("mcp", self._scope, name, secrets.token_hex(8))))
        self._unnamed[name, peer] = id_, now
        if len(self._unnamed) > _MAX_RUNS:
            self._unnamed.popitem(last=False)
        return id_
