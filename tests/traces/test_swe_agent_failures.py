"""SWE-agent observations that are failures, and ones that only look like it."""

from __future__ import annotations

import pytest

from policyguard.traces.formats.swe_agent import is_failure

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'

FAILURES = [
    (
        "edit",
        "Your proposed edit has introduced new syntax error(s). Please read this …\n\nERRORS:",
    ),
    (
        "edit",
        "Your edit was not applied (file not modified): Text 'x' not found in displayed lines",
    ),
    ("edit", "Your search and replace strings are the same. No changes were made."),
    ("edit", "Usage: edit <start_line>:<end_line>"),
    ("goto", "Usage: goto <line>\nError: <line> must be a number"),
    ("goto", "Error: <line> must be less than or equal to 12"),
    (
        "str_replace_editor",
        "No replacement was performed, old_str `x` did not appear verbatim in a",
    ),
    (
        "str_replace_editor",
        "No replacement was performed. Multiple occurrences of old_str `x` …",
    ),
    ("str_replace_editor", "The path /a b.py does not exist. Please provide a valid path."),
    (
        "str_replace_editor",
        "The path a.py is not an absolute path, it should start with `/`. M…",
    ),
    (
        "str_replace_editor",
        "The path /a is a directory and only the `view` command can be used on directories",
    ),
    (
        "str_replace_editor",
        "File already exists at: /a.py. Cannot overwrite files using command `create`.",
    ),
    ("create", "Error: File 'a.py' already exists.\n[File: a.py (1 lines total)]\n1:"),
    ("scroll_down", "No file open. Use the open command first."),
    ("insert", "No file opened. Either `open` or `create` a file first."),
    ("python", "1\n2\n\nEXECUTION TIMED OUT"),
    ("python", "\nEXECUTION TIMED OUT AND INTERRUPT FAILED. RESTARTING PROCESS."),
    (
        "python",
        "EXECUTION TIMED OUT BECAUSE NO OUTPUT WAS PRODUCED FOR MORE THAN 30 SECONDS.\n"
        "PLEASE REFINE YOUR RUNNING COMMAND SO IT WILL PRODUCE OUTPUT IN THE SPECIFIED TIME FRAME.",
    ),
    (
        "sleep",
        "The command 'sleep 99' was cancelled because it took more than 30 seconds. Please …",
    ),
    ("cat", "\nEXECUTION FAILED OR COMMAND MALFORMED"),
    ("cat", "half\nCOMMAND FAILED TO EXECUTE. RESTARTING PROCESS."),
    ("cat", "\nBROKEN PIPE ERROR. RESTARTING PROCESS."),
    ("ls", "ls: cannot access 'Makefile*': No such file or directory"),
    ("python", "python: can't open file 'manage.py': [Errno 2] No such file or directory\r\n"),
    ("cat", "cat: src: Is a directory"),
    ("cd", "bash: cd: a.py: Not a directory"),
    ("rm", "rm: cannot remove 'a': Permission denied"),
    ("pyflakes", "/bin/bash: line 1: pyflakes: command not found"),
    ("for", "/bin/bash: line 2: syntax error: unexpected end of file\n/bin/bash: line 2: `for i'"),
    ("find_file", "Directory src not found"),
    ("open", "File src/a.py not found"),
    ("python", f"{TRACEBACK}ValueError: no"),
    ("python", f"{TRACEBACK}KeyboardInterrupt"),
    ("python", f"{TRACEBACK}django.core.exceptions.ImproperlyConfigured: Requested setting"),
    ("python", f"starting\n{TRACEBACK}lib.FetchError: y\n"),
]

NO_FAILURES = [
    ("cat", "The path /a.py does not exist. Please provide a valid path."),
    ("str_replace_editor", "The path /a.py has been edited.\nThe path /b does not exist. Please …"),
    ("str_replace_editor", "Here's a log:\nNo replacement was performed, old_str `x` did not …"),
    ("ls", ""),
    ("find_file", 'No matches found for "a.py" in /repo'),
    ("cat", "Errors are described in errors.md"),
    ("sed", "Usage: sed [OPTION]... {script} [input-file]..."),
    ("cat", "Usage: edit <start_line>"),
    ("grep", "the file was not found"),
    ("cat", "bash: make: command not found\nbut that was yesterday"),
    ("cat", "EXECUTION TIMED OUT\nwas the message"),
    ("cat", f"log of a run:\n{TRACEBACK}ValueError: no\nIt was mended since."),
    ("python", f"{TRACEBACK}ValueError: no\nOK"),
    ("python", f"indented:\n  {TRACEBACK}ValueError: no"),
    ("python", "ValueError occurred as expected\nScript completed successfully."),
    (
        "edit",
        '  File "/root/commands/_split_string", line 17\nSyntaxError: future feature annotations is'
        " not defined\n[File: a.py (1 lines total)]\n1:x\nFile updated. Please review the changes",
    ),
]


@pytest.mark.parametrize(("tool", "observation"), FAILURES)
def test_failures(tool: str, observation: str) -> None:
    assert is_failure(tool, observation)


@pytest.mark.parametrize(("tool", "observation"), NO_FAILURES)
def test_non_failures(tool: str, observation: str) -> None:
    assert not is_failure(tool, observation)
