"""What a hook tells its host."""

from __future__ import annotations

from typing import Any, NamedTuple

EXIT_BLOCK = 2
"""The exit code with which every supported host refuses the call; standard error is the reason."""


class HookAnswer(NamedTuple):
    """`output` is the JSON for standard output (None: nothing), `error` for standard error."""

    output: dict[str, Any] | None = None
    exit_code: int = 0
    error: str = ""


NO_OPINION = HookAnswer()


def refuse(reason: str) -> HookAnswer:
    """Return an answer that refuses a call in every host."""
    return HookAnswer(exit_code=EXIT_BLOCK, error=reason)


def add_context(event: str, text: str) -> HookAnswer:
    """Return an answer to an event that adds a text to what the model reads next, if there is one.

    Claude Code, Codex and Gemini CLI understand it.
    """
    if not text:
        return NO_OPINION
    specific = {"hookEventName": event, "additionalContext": text}
    return HookAnswer({"hookSpecificOutput": specific})
