"""The hosts whose hooks policyguard answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from policyguard.adapters.hooks import claude_code, codex, copilot_cli, gemini_cli, opencode
from policyguard.adapters.hooks.answer import HookAnswer, refuse
from policyguard.adapters.json_text import decode
from policyguard.adapters.sessions import ServedSessions
from policyguard.adapters.waiting import StillWaiting
from policyguard.model.errors import PolicyguardError

Answerer = Callable[[ServedSessions, dict[str, Any]], HookAnswer]
"""Answers an event of a host; it may raise anything, which `answer_hook` turns into a refusal."""

HOSTS: dict[str, Answerer] = {
    claude_code.NAME: claude_code.answer,
    codex.NAME: codex.answer,
    copilot_cli.NAME: copilot_cli.answer,
    gemini_cli.NAME: gemini_cli.answer,
    opencode.NAME: opencode.answer,
}

_ALLOWING = {opencode.NAME: opencode.ALLOWED.output}
"""What allows a call, where saying nothing does not."""


def answer_hook(sessions: ServedSessions, host: str, body: bytes) -> HookAnswer:
    """Answer a host's event; one that cannot be read or answered refuses the call.

    It allows it if the policy says so (`on_internal_error: allow`). Raises `StillWaiting`.
    """
    try:
        event: dict[str, Any] = decode(body, dict)
        return HOSTS[host](sessions, event)
    except StillWaiting:
        raise
    except Exception as error:  # noqa: BLE001 - no failure of ours may let a call run
        from policyguard.guard.host_log import log_failure, warn

        reason = f"policyguard could not check this call ({_describe(error)})"
        if isinstance(error, (PolicyguardError, msgspec.DecodeError, KeyError)):
            warn(reason)
        else:
            log_failure(f"a hook event of {host} was not answered")
        if not sessions.allows_on_error:
            return refuse(reason)
        return HookAnswer(_ALLOWING.get(host), error=reason)


def _describe(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"the event has no field `{error.args[0]}`"
    return f"{type(error).__name__}: {error}"
