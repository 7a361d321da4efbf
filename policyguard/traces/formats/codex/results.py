"""Results of Codex calls, from their output or from a separate event."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from policyguard.model.event import Provenance
from policyguard.traces.parsing.json_shape import (
    as_exit_code,
    as_id,
    as_object,
    as_objects,
    as_seconds,
    as_string,
)
from policyguard.traces.parsing.json_text import try_decode
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedResult

_HEADER = re.compile(
    r"(?:Command: (?s:.*?)\n)??"
    r"(?P<lines>(?:Chunk ID|Wall time|Exit code|Process exited with code"
    r"|Script (?:completed|failed|running))\b.*\n(?:.*\n){0,6}?)"
    r"Output:(?:\n|$)"
)
"""The header that Codex adds to a command's output; its numbers differ from call to call."""

_STILL_RUNNING = re.compile(r"^(?:Process|Script) running with ", re.MULTILINE)
_SCRIPT_FAILED = "Script failed\n"
_EXIT_CODE = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d{1,10})$", re.MULTILINE)
_WALL_TIME = re.compile(r"^Wall time:? (\d{1,9}(?:\.\d{1,9})?) seconds$", re.MULTILINE)

_HARNESS_ERROR_PREFIXES = (
    "failed to parse function arguments",
    "apply_patch verification failed",
    "unsupported call: ",
    "unsupported custom tool call: ",
    "exec_command failed",
    "write_stdin failed",
    "exec command rejected by user",
    "patch rejected",
)
"""How an output begins if Codex could not run the call."""

_CANCELLED_PREFIX = "aborted by user"
"""How an output begins if the user stopped the call."""

_PATCH_STATUS = {"completed": True, "failed": False}
"""The status of an `apply_patch_call`'s output; for other calls it does not show success."""


class CallEnd(msgspec.Struct, frozen=True):
    """The end of a call by an event, which comes before the call's output."""

    ok: bool
    exit_code: int | None = None


def parse_end(event: dict[str, Any]) -> CallEnd | None:
    """Return the end of a call by an event; None for other events."""
    kind = as_string(event.get("type"))
    if kind == "exec_command_end":
        code = as_exit_code(event.get("exit_code"))
        return None if code is None else CallEnd(code == 0, code)
    if kind == "patch_apply_end" and isinstance(event.get("success"), bool):
        return CallEnd(event["success"])
    if kind == "mcp_tool_call_end":
        result = as_object(event.get("result"))
        if "Err" in result:
            return CallEnd(ok=False)
        if "Ok" in result:
            answer = as_object(result["Ok"])
            return CallEnd(answer.get("isError", answer.get("is_error")) is not True)
    return None


class _Output(msgspec.Struct, frozen=True):
    text: str
    exit_code: int | None = None
    duration: float | None = None
    is_failed: bool = False
    is_running: bool = False


def parse_result(item: dict[str, Any], end: CallEnd | None, at: int | None) -> ImportedResult:
    """Return the result in a `…_output` item, which takes precedence over the event's `end`."""
    output = _parse_output(item.get("output"))
    flag = _success_flag(item)
    call = as_id(item.get("call_id"))
    if output.is_running:
        return ImportedResult(call, output.text, at=at, duration=output.duration, state="pending")
    if output.text.startswith(_CANCELLED_PREFIX):
        return ImportedResult(
            call, output.text, None, "inferred", at, duration=output.duration, state="cancelled"
        )
    code = end.exit_code if output.exit_code is None and end is not None else output.exit_code
    ok: bool | None
    provenance: Provenance = "explicit"
    if code is not None:
        ok = code == 0
    elif flag is not None:
        ok = flag
    elif output.is_failed:
        ok = False
    elif end is not None:
        ok = end.ok
    elif output.text.startswith(_HARNESS_ERROR_PREFIXES):
        ok, provenance = False, "inferred"
    else:
        ok, provenance = None, "unknown"
    return ImportedResult(
        call, output.text, ok, provenance, at, exit_code=code, duration=output.duration
    )


def _success_flag(item: dict[str, Any]) -> bool | None:
    output = item.get("output")
    if item.get("type") == "apply_patch_call_output":
        return _PATCH_STATUS.get(as_string(item.get("status")))
    outcomes = [as_object(command.get("outcome")) for command in as_objects(output)]
    if any(outcome.get("type") == "timeout" for outcome in outcomes):
        return False
    success = as_object(output).get("success")
    return success if isinstance(success, bool) else None


def _parse_output(output: object) -> _Output:
    if isinstance(output, dict):
        content = [output] if output.get("type") == "computer_screenshot" else output
        return _Output(as_text(output.get("content", content)))
    commands = [command for command in as_objects(output) if "stdout" in command]
    if commands:
        return _Output(_join_streams(commands), _first_nonzero_exit(commands))
    text = as_text(output)
    if text.startswith("{"):
        wrapped = as_object(try_decode(text))
        metadata = as_object(wrapped.get("metadata"))
        if "output" in wrapped and metadata:
            code = as_exit_code(metadata.get("exit_code"))
            duration = as_seconds(metadata.get("duration_seconds"))
            return _Output(as_text(wrapped["output"]), code, duration)
    header = _HEADER.match(text)
    if header is None:
        return _Output(text)
    lines, rest = header["lines"], text[header.end() :]
    code_match, time_match = _EXIT_CODE.search(lines), _WALL_TIME.search(lines)
    code = int(code_match[1]) if code_match else None
    duration = float(time_match[1]) if time_match else None
    if _STILL_RUNNING.search(lines):
        # Only the header tells an agent that waits from one that loops.
        return _Output(text, code, duration, is_running=True)
    if isinstance(output, list):  # the header is a block by itself
        rest = rest.removeprefix("\n")
    return _Output(rest, code, duration, lines.startswith(_SCRIPT_FAILED))


def _join_streams(commands: list[dict[str, Any]]) -> str:
    streams = [command.get(key) for command in commands for key in ("stdout", "stderr")]
    return "\n".join(filter(None, map(as_string, streams)))


def _first_nonzero_exit(commands: list[dict[str, Any]]) -> int | None:
    """Return the first exit code that is not 0, else 0; None if a command has not ended."""
    outcomes = [as_object(command.get("outcome")) for command in commands]
    codes = [as_exit_code(outcome.get("exit_code")) for outcome in outcomes]
    return next((code for code in codes if code), None if None in codes else 0)
