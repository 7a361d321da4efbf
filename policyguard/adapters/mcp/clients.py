"""What is known of a client: who it is, what it can do, and which run a request belongs to."""

from __future__ import annotations

from typing import Any, Self

import msgspec

from policyguard.adapters.mcp.messages import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    MODERN,
    PROTOCOL_VERSION,
)

_MAX_NAME_CHARS = 80

_RUN_KEYS = ("threadId", "sessionId")
"""Keys of `_meta` in which clients name the run: Codex sends both, a thread is one agent's."""

_CALL_KEYS = ("claudecode/toolUseId", "callId")
"""Keys of `_meta` in which clients name the model's call: Claude Code, Codex."""


class Client(msgspec.Struct, frozen=True):
    """A client: its name, the version of the protocol that it speaks, and what it can do."""

    name: str = ""
    protocol: str = ""
    capabilities: dict[str, Any] = {}

    @classmethod
    def from_handshake(cls, params: dict[str, Any]) -> Self:
        """Return the client that an `initialize` describes."""
        return cls(
            _name(params.get("clientInfo")),
            str(params.get("protocolVersion") or ""),
            _mapping(params.get("capabilities")),
        )

    @classmethod
    def from_meta(cls, meta: dict[str, Any]) -> Self:
        """Return the client that the `_meta` of a request without a session describes."""
        return cls(
            _name(meta.get(CLIENT_INFO)),
            str(meta.get(PROTOCOL_VERSION) or ""),
            _mapping(meta.get(CLIENT_CAPABILITIES)),
        )

    @property
    def is_modern(self) -> bool:
        """Whether it speaks the protocol without sessions."""
        return self.protocol >= MODERN

    @property
    def has_forms(self) -> bool:
        """Whether it can show a person a form (elicitation)."""
        elicitation = self.capabilities.get("elicitation")
        return isinstance(elicitation, dict) and (not elicitation or "form" in elicitation)


def run_of(meta: dict[str, Any]) -> str:
    """Return the run that a request's `_meta` names; empty if it names none."""
    return next((meta[key] for key in _RUN_KEYS if _is_name(meta.get(key))), "")


def call_of(meta: dict[str, Any]) -> str | None:
    """Return the client's own id of the model's call, if its `_meta` has one."""
    return next((meta[key] for key in _CALL_KEYS if _is_name(meta.get(key))), None)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()


def _name(info: object) -> str:
    name = info.get("name") if isinstance(info, dict) else None
    if not isinstance(name, str):
        return ""
    return "".join(letter for letter in name if letter.isprintable())[:_MAX_NAME_CHARS]


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
