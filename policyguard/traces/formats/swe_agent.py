"""SWE-agent `.traj` files: a JSON document with one session of one turn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from policyguard.model.event import SessionStarted
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import as_list, as_object, as_objects, as_seconds
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "swe-agent"

_TOOL_ERROR_PREFIXES = (
    "Your proposed edit has introduced new syntax error(s).",
    "Your edit was not applied (file not modified):",
    "Your search and replace strings are the same.",
    "No file open. Use the",
    "No file opened. Either",
    "Error: ",
)
"""How errors of SWE-agent's own tools begin."""

_EDITOR_TOOL = "str_replace_editor"
_EDITOR_ERROR = re.compile(
    r"No replacement was performed[,.] "
    r"|File already exists at: .*\. Cannot overwrite files using command `create`"
    r"|The path .* (?:does not exist\. Please provide a valid path"
    r"|is a directory and only the `view` command can be used"
    r"|is not an absolute path, it should start with `/`)"
)
"""How errors of SWE-agent 1's editor begin."""

_ENVIRONMENT_ERROR_PREFIXES = (
    "EXECUTION TIMED OUT",
    "EXECUTION FAILED OR COMMAND MALFORMED",
    "COMMAND FAILED TO EXECUTE. RESTARTING PROCESS.",
    "BROKEN PIPE ERROR. RESTARTING PROCESS.",
    "PLEASE REFINE YOUR RUNNING COMMAND SO IT WILL PRODUCE OUTPUT IN THE SPECIFIED TIME FRAME.",
)
"""How the environment's error in the last line begins."""

_SHELL_ERROR_SUFFIXES = (
    "No such file or directory",
    "Is a directory",
    "Not a directory",
    "Permission denied",
    "command not found",
)
"""How a one-line error of the shell, or of a program it ran, ends."""

_TRACEBACK = "\nTraceback (most recent call last):\n"
_EXCEPTION_LINE = re.compile(
    r"\w*(?:Error|Exception|Interrupt|Exit)(?::|$)|(?:\w+\.)+[A-Z]\w*(?::|$)"
)


def detect(sample: Sample) -> bool:
    """Return whether the document, or an attempt in it, has steps, or it is a demonstration."""
    document = as_object(sample.document)
    runs = (document, *as_objects(document.get("attempts")))
    history = as_objects(document.get("history"))
    is_demonstration = any("action" in entry and "agent" in entry for entry in history)
    return any(map(_has_steps, runs)) or is_demonstration


def _has_steps(run: dict[str, Any]) -> bool:
    steps = as_objects(run.get("trajectory"))
    return any("action" in step and "observation" in step for step in steps)


def read(source: Source) -> Iterator[Item]:
    """Yield the steps of the trajectory; each step with an action is a call and its result."""
    document = as_object(source.sample.document)
    attempts = len(as_list(document.get("attempts")))
    if attempts:
        chosen = "only the chosen one is read" if "trajectory" in document else "none is chosen"
        yield Skipped(source.file, None, f"{attempts} attempts at one task: {chosen}")
    elif "trajectory" not in document:
        reason = "a demonstration: it has a history but no trajectory with steps"
        yield Skipped(source.file, None, reason)
    if "trajectory" not in document:
        return
    started = SessionStarted(session=source.name.removesuffix(".traj"), agent=FORMAT)
    builder = SessionBuilder(source.file, started)
    builder.add_prompt()
    for index, step in enumerate(as_list(document["trajectory"])):
        if isinstance(step, dict) and isinstance(step.get("action"), str):
            yield from _read_step(builder, step)
        else:
            yield Skipped(source.file, None, f"step {index}: no action")
    yield from builder.close()


def _read_step(builder: SessionBuilder, step: dict[str, Any]) -> Iterator[Item]:
    action = step["action"]
    words = action.split(maxsplit=1)
    if not words:
        yield from builder.add_reply()
        return
    tool = words[0]
    yield from builder.add_calls([ImportedCall("", tool, {"command": action})])
    if step.get("observation") is not None:
        yield from builder.add_result(_parse_result(tool, step))


def _parse_result(tool: str, step: dict[str, Any]) -> ImportedResult:
    text = as_text(step["observation"])
    failed = is_failure(tool, text)
    return ImportedResult(
        call="",
        text=text,
        ok=False if failed else None,
        provenance="inferred" if failed else "unknown",
        duration=as_seconds(step.get("execution_time")),
    )


def is_failure(tool: str, observation: str) -> bool:
    """Return whether the observation shows a failure; False does not mean success."""
    text = observation.replace("\r\n", "\n").strip()
    first, last = text.split("\n", 1)[0], text.rsplit("\n", 1)[-1]
    return (
        text.startswith((*_TOOL_ERROR_PREFIXES, f"Usage: {tool} <"))
        or (tool == _EDITOR_TOOL and _EDITOR_ERROR.match(first) is not None)
        or (first.startswith("The command '") and "' was cancelled because it took more" in text)
        or (first.startswith("/bin/bash: line ") and ": syntax error" in first)
        or (first == text and _is_shell_error(text))
        or last.startswith(_ENVIRONMENT_ERROR_PREFIXES)
        or (_TRACEBACK in f"\n{text}" and _EXCEPTION_LINE.match(last) is not None)
    )


def _is_shell_error(line: str) -> bool:
    first_word = line.split(" ", 1)[0]
    return (first_word.endswith(":") and line.endswith(_SHELL_ERROR_SUFFIXES)) or (
        first_word in ("Directory", "File") and line.endswith(" not found")
    )
