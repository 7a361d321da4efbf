"""A client's requests on their way: what becomes of a message, and what has no response yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from policyguard.adapters.mcp.call_sessions import CallSession
from policyguard.adapters.mcp.clients import Client
from policyguard.adapters.mcp.guarded_server import OpenCall
from policyguard.adapters.mcp.messages import Message

Sender = Callable[[Message], None]
"""Sends a message to the client."""


class Passage(NamedTuple):
    """What becomes of a message: what goes to the server, and what to the client."""

    to_server: Message | None = None
    to_client: Message | None = None


class Pending(msgspec.Struct, eq=False):
    """A request of the client that has no response yet.

    `call` is set while the server runs it, `passed` are the parameters that it got; `task` is set
    while a call waits: for a slot, or for a person. Of one that `may_be_unanswered` its client has
    gone or cancelled it: a response would be judged, but none need come.
    """

    id: Any
    method: str
    params: dict[str, Any]
    client: Client
    send: Sender | None = None
    session: CallSession | None = None
    call: OpenCall | None = None
    passed: dict[str, Any] = {}
    has_slot: bool = False
    task: asyncio.Task[Any] | None = None
    may_be_unanswered: bool = False


def pop_unanswered(requests: dict[object, Pending]) -> Pending | None:
    """Take out the oldest request to which no response need come; None if there is none."""
    found = next((key for key, one in requests.items() if one.may_be_unanswered), None)
    return None if found is None else requests.pop(found)
