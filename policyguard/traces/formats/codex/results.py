"""What a Codex rollout says of how a call ended: in its output, or in an event of its own."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from policyguard.model.event import Provenance
from policyguard.traces.parsing.json_shape import as_amount, as_id, as_object, as_objects, as_string
from policyguard.traces.parsing.json_text import JsonError, decode
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedResult

_HEADER = re.compile(
    r"(?:Command: (?s:.*?)\n)??"
    r"(?P<says>(?:Chunk ID|Wall time|Exit code|Process exited with code"
    r"|Script (?:completed|failed|running))\b.*\n(?:.*\n){0,6}?)"
    r"Output:(?:\n|$)"
)
"""What Codex puts above what a command printed: numbers that differ from call to call."""

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
    "aborted by user",
)
"""How an output begins in which Codex itself says that a call could not be run."""

_PATCH_STATUS = {"completed": True, "failed": False}
"""The status of the output of an `apply_patch_call`; of any other it says only that it is there."""


class CallEnd(msgspec.Struct, frozen=True):
    """How a call ended by an event, which stands before the call's output."""

    ok: bool
    exit_code: int | None = None


def parse_end(event: dict[str, Any]) -> CallEnd | None:
    """What an event says of the end of its call; None where it speaks of something else."""
    kind = as_string(event.get("type"))
    if kind == "exec_command_end":
        code = _as_exit_code(event.get("exit_code"))
        return None if code is None else CallEnd(code == 0, code)
    if kind == "patch_apply_end" and isinstance(event.get("success"), bool):
        return CallEnd(event["success"])
    if kind == "mcp_tool_call_end":
        outcome = as_object(event.get("result"))
        if "Err" in outcome:
            return CallEnd(ok=False)
        if "Ok" in outcome:
            told = as_object(outcome["Ok"])
            return CallEnd(told.get("isError", told.get("is_error")) is not True)
    return None


class _Output(msgspec.Struct, frozen=True):
    """What stands in an output, in any of its forms."""

    text: str
    exit_code: int | None = None
    duration: float | None = None
    is_failed: bool = False
    is_running: bool = False


def parse_result(item: dict[str, Any], end: CallEnd | None, at: int | None) -> ImportedResult:
    """A `…_output` item. What it says itself goes before what an event `told`."""
    output = item.get("output")
    said = _parse_output(output)
    flag = _success_flag(item)
    call = as_id(item.get("call_id"))
    if said.is_running:
        return ImportedResult(call, said.text, at=at, duration=said.duration, is_pending=True)
    code = end.exit_code if said.exit_code is None and end is not None else said.exit_code
    ok: bool | None
    known: Provenance = "explicit"
    if code is not None:
        ok = code == 0
    elif flag is not None:
        ok = flag
    elif said.is_failed:
        ok = False
    elif end is not None:
        ok = end.ok
    elif said.text.startswith(_HARNESS_ERROR_PREFIXES):
        ok, known = False, "inferred"
    else:
        ok, known = None, "unknown"
    return ImportedResult(call, said.text, ok, known, at, exit_code=code, duration=said.duration)


def _success_flag(item: dict[str, Any]) -> bool | None:
    """What an output says of its success, without a code."""
    output = item.get("output")
    if item.get("type") == "apply_patch_call_output":
        return _PATCH_STATUS.get(as_string(item.get("status")))
    if any(as_object(ran.get("outcome")).get("type") == "timeout" for ran in as_objects(output)):
        return False
    success = as_object(output).get("success")
    return success if isinstance(success, bool) else None


def _parse_output(output: object) -> _Output:
    if isinstance(output, dict):
        seen = [output] if output.get("type") == "computer_screenshot" else output
        return _Output(as_text(output.get("content", seen)))
    ran = [command for command in as_objects(output) if "stdout" in command]
    if ran:
        return _Output(_join_streams(ran), _first_nonzero_exit(ran))
    text = as_text(output)
    if text.startswith("{"):
        wrapped = as_object(_try_decode(text))
        metadata = as_object(wrapped.get("metadata"))
        if "output" in wrapped and metadata:
            took = as_amount(metadata.get("duration_seconds"))
            code = _as_exit_code(metadata.get("exit_code"))
            return _Output(as_text(wrapped["output"]), code, None if took is None else float(took))
    header = _HEADER.match(text)
    if header is None:
        return _Output(text)
    says, rest = header["says"], text[header.end() :]
    code_told, time_told = _EXIT_CODE.search(says), _WALL_TIME.search(says)
    code = int(code_told[1]) if code_told else None
    took = float(time_told[1]) if time_told else None
    if _STILL_RUNNING.search(says):
        # Somebody who waits is told apart from somebody who goes round by the header alone.
        return _Output(text, code, took, is_running=True)
    if isinstance(output, list):  # the header is a block by itself
        rest = rest.removeprefix("\n")
    return _Output(rest, code, took, says.startswith(_SCRIPT_FAILED))


def _join_streams(commands: list[dict[str, Any]]) -> str:
    """What the commands of a `shell_call` printed, in their order."""
    texts = [
        as_string(command.get(stream)) for command in commands for stream in ("stdout", "stderr")
    ]
    return "\n".join(text for text in texts if text)


def _first_nonzero_exit(commands: list[dict[str, Any]]) -> int | None:
    """The first exit code that is not 0, else 0; None where a command has not come to its end."""
    codes = [
        _as_exit_code(as_object(command.get("outcome")).get("exit_code")) for command in commands
    ]
    return next((code for code in codes if code), None if None in codes else 0)


def _try_decode(text: str) -> object:
    try:
        return decode(text)
    except JsonError:
        return None


def _as_exit_code(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return value
    return None
