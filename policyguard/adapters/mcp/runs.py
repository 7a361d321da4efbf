"""Which session of the guard a request of a client belongs to."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict

from policyguard.adapters.mcp.clients import Client
from policyguard.adapters.sessions import ServedSessions, SessionRequest
from policyguard.guard.session import Session

_MAX_RUNS = 4096
"""Runs that clients do not name, by client; the least recently used are forgotten first."""


class Runs:
    """The sessions of clients: what they name as their run, or one for each client.

    A run that its client does not name is over after `idle` seconds without a request. With a
    `fixed` id all requests are of that session. `scope` keeps apart the sessions of proxies that
    use the same store.
    """

    def __init__(
        self,
        sessions: ServedSessions,
        *,
        fixed: str = "",
        scope: str = "",
        idle: float,
        cwd: str | None = None,
    ) -> None:
        self._sessions = sessions
        self._fixed, self._scope, self._idle = fixed, scope, idle
        self._unnamed: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()
        self._cwd = cwd

    async def open(self, client: Client, run: str, peer: str) -> Session:
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
