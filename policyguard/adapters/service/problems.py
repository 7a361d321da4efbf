"""What is wrong with a request, for the program that sent it and for who wrote that program."""

from __future__ import annotations

import re

import msgspec

from policyguard.adapters.service.protocol import Problem
from policyguard.journal.errors import JournalError
from policyguard.model.diagnostic import did_you_mean
from policyguard.model.errors import ClosedError, SessionLimitError, UnknownCallError
from policyguard.store.errors import SessionBusyError, StoreError

_STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (UnknownCallError, 404, "unknown call"),
    (SessionBusyError, 409, "session in use elsewhere"),
    (ClosedError, 409, "session or service closed"),
    (SessionLimitError, 503, "too many sessions"),
    (StoreError, 503, "store not usable"),
    (JournalError, 503, "journal not usable"),
    (KeyError, 400, "invalid request"),
    (TypeError, 400, "invalid request"),
    (ValueError, 400, "invalid request"),
    (RecursionError, 400, "invalid request"),
)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?(.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*?)`(?: - at `\$\.?(.*)`)?", re.DOTALL)
_WRONG = re.compile(r"Expected `(.*?)`, got `(.*?)`(?: - at `\$\.?(.*)`)?", re.DOTALL)
_KINDS = {"array": "a list", "int": "an integer", "float": "a number", "bool": "true or false"}
_KINDS |= {"object": "an object", "str": "a text", "null": "null", "number": "a number"}
_FOREIGN_NAMES = {
    "args": ("arguments", "input", "tool_input", "parameters", "params", "tool_args"),
    "tool": ("name", "tool_name", "toolName", "function"),
    "session": ("session_id", "sessionId", "thread_id", "conversation_id", "id"),
    "call": ("id", "call_id", "callId", "tool_call_id", "tool_use_id", "decision"),
    "result": ("output", "tool_response", "tool_output", "response", "content"),
    "exit_code": ("exitCode", "returncode", "return_code", "exit"),
    "error": ("is_error", "isError", "exception", "message"),
    "cwd": ("working_directory", "workdir", "directory", "folder"),
    "tokens": ("usage", "token_count", "total_tokens"),
    "duration": ("duration_ms", "elapsed", "seconds"),
    "agent": ("agent_id", "agentId", "subagent"),
}
"""Names of fields elsewhere, by ours."""


def describe_problem(error: Exception, request: type[msgspec.Struct] | None = None) -> Problem:
    """Return what an error of an operation means to the program that asked.

    `request` is the class of requests of the operation.
    """
    for kind, status, title in _STATUSES:
        if isinstance(error, kind):
            if isinstance(error, msgspec.MsgspecError) and request is not None:
                detail = _explain(str(error), request)
            else:
                detail = str(error.args[0] if isinstance(error, KeyError) else error)
            return Problem(title=title, status=status, detail=detail)
    return Problem(title="internal error", status=500, detail=f"{type(error).__name__}: {error}")


def _explain(message: str, request: type[msgspec.Struct]) -> str:
    """Return what is wrong with the JSON of a request, and what to write."""
    fields = msgspec.structs.fields(request)
    if found := _UNKNOWN.fullmatch(message):
        name, place = found[1], found[2]
        if place:
            return f"`{place}` has an unknown field `{name}`"
        names = [field.encode_name for field in fields]
        meant = [ours for ours in names if name in _FOREIGN_NAMES.get(ours, ())]
        hint = f"did you mean `{meant[0]}`?" if meant else did_you_mean(name, names)
        return f"unknown field `{name}`: {hint or 'the fields are ' + _list_fields(fields)}"
    if found := _MISSING.fullmatch(message):
        where = f" of `{found[2]}`" if found[2] else ""
        return f"the required field `{found[1]}`{where} is missing"
    if (found := _WRONG.fullmatch(message)) and found[3]:
        wanted = " or ".join(_KINDS.get(kind, kind) for kind in found[1].split(" | "))
        return f"`{found[3]}` must be {wanted}, not {_KINDS.get(found[2], found[2])}"
    if found or "JSON" in message or "truncated" in message:
        example = ", ".join(f'"{field.encode_name}": …' for field in fields if field.required)
        return f"the request is not one JSON object such as {{{example}}} ({message})"
    return message


def _list_fields(fields: tuple[msgspec.structs.FieldInfo, ...]) -> str:
    ordered = sorted(fields, key=lambda field: not field.required)
    return ", ".join(
        f"`{field.encode_name}`{' (required)' if field.required else ''}" for field in ordered
    )
