"""Inference of failures from SWE-agent observations, which have no error flag.

A failure shows in a fixed text of SWE-agent's tools or environment, or in an end that no successful
command has. Only the start and the end of the observation count: its middle may be any file that
the agent reads.
"""

from __future__ import annotations

import re

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
