"""Asking the client's user about a call: a form in a session, or an answer that asks for input.

In the protocol without sessions the client repeats the call with the user's answer and the state
that it was given. The state is signed and names the call, so that an answer is good for that call
and is used once.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from base64 import urlsafe_b64encode
from collections import OrderedDict
from typing import Any, Generic, TypeVar

import msgspec

from policyguard.adapters.mcp.messages import encode
from policyguard.adapters.mcp.results import NOTES
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.report.questions import render_arguments

T = TypeVar("T")

_PLAIN = "applies to this call"
"""How the text of a rule ends that asks, and has no message of its own."""
_MAX_NAME_CHARS = 120
_STATE_PREFIX = "pg1."
_MAX_STATE_CHARS = 512
_MAX_PENDING = 1024
"""Calls that wait for a person or for the client's input; the oldest are forgotten first."""

STATE_SECONDS = 3600
"""How long a client may take to repeat a call."""


def build_form(decision: Decision, args: object) -> dict[str, Any]:
    """Return the parameters of an `elicitation/create` that asks a person about a call.

    `args` are its arguments as people may see them.
    """
    shown = args if isinstance(args, dict) else {"arguments": args}
    asking = [one for one in decision.violations if one.effect is Effect.ASK]
    reasons = [
        f"- {one.id}" if one.text.endswith(_PLAIN) else f"- {one.id}: {one.text}" for one in asking
    ]
    lines = [
        f"The agent wants to call {decision.tool[:_MAX_NAME_CHARS]} with:",
        *(f"  {line}" for line in render_arguments(shown)),
        "The policy asks first:",
        *reasons,
        "Yes lets this call run, once. No tells the agent that you refused it.",
    ]
    return {
        "mode": "form",
        "message": "\n".join(lines),
        "requestedSchema": {
            "type": "object",
            "properties": {
                "approve": {
                    "type": "boolean",
                    "title": "Run this call",
                    "description": "Whether the call may run, this once.",
                    "default": False,
                }
            },
            "required": ["approve"],
        },
    }


def read_answer(answer: object) -> bool | None:
    """Return a person's yes or no to the form; None if it was closed, or says neither."""
    if not isinstance(answer, dict):
        return None
    if answer.get("action") == "decline":
        return False
    content = answer.get("content")
    if answer.get("action") != "accept" or not isinstance(content, dict):
        return None
    approve = content.get("approve")
    return approve if isinstance(approve, bool) else None


def ask_by_result(form: dict[str, Any], state: str) -> dict[str, Any]:
    """Return the result that asks the client to repeat a call with the user's answer to a form."""
    request = {"method": "elicitation/create", "params": form}
    return {
        "resultType": "input_required",
        "inputRequests": {NOTES: request},
        "requestState": state,
    }


class SuspendedCalls(Generic[T]):
    """Calls that the client repeats, found by the signed state that it was given.

    Each is found once, by the same call (server, tool and arguments), within `STATE_SECONDS`.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._calls: OrderedDict[str, tuple[T, float]] = OrderedDict()

    def suspend(self, call: T, identity: bytes) -> tuple[str, list[T]]:
        """Keep a call; return the state for the client, and the calls that are forgotten for it."""
        id_, now = secrets.token_urlsafe(16), time.monotonic()
        self._calls[id_] = call, now + STATE_SECONDS
        forgotten = []
        while self._calls:
            first, (oldest, expires) = next(iter(self._calls.items()))
            if len(self._calls) <= _MAX_PENDING and expires > now:
                break
            del self._calls[first]
            forgotten.append(oldest)
        return f"{_STATE_PREFIX}{id_}.{self._sign(id_, identity)}", forgotten

    @staticmethod
    def is_state(state: str) -> bool:
        """Whether a state is one of this kind, valid or forged."""
        return state.startswith(_STATE_PREFIX)

    def resume(self, state: str, identity: bytes) -> T | None:
        """Return the call of a state; None if it is forged, of another call, or was used."""
        id_, _, signature = state[len(_STATE_PREFIX) : _MAX_STATE_CHARS].partition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(id_, identity).encode()):
            return None
        call, expires = self._calls.pop(id_, (None, 0.0))
        return call if expires > time.monotonic() else None

    def _sign(self, id_: str, identity: bytes) -> str:
        digest = hmac.digest(self._key, id_.encode() + b"\0" + identity, hashlib.sha256)
        return urlsafe_b64encode(digest).decode().rstrip("=")


def identify_call(server: str, session: str, params: dict[str, Any]) -> bytes:
    """Return what makes a call the same: its session, server, tool and arguments."""
    identity = [session, server, params.get("name"), params.get("arguments")]
    try:
        return msgspec.json.encode(identity, order="sorted")
    except (UnicodeEncodeError, OverflowError, ValueError, TypeError):
        return encode({"call": identity})


def restore_state(params: dict[str, Any], state: str | None) -> dict[str, Any]:
    """Return the parameters with the server's own state, and without the answers to us."""
    restored = {key: value for key, value in params.items() if key != "requestState"}
    if state is not None:
        restored["requestState"] = state
    responses = params.get("inputResponses")
    if isinstance(responses, dict) and NOTES in responses:
        left = {key: value for key, value in responses.items() if key != NOTES}
        restored["inputResponses"] = left
        if not left:
            del restored["inputResponses"]
    return restored
