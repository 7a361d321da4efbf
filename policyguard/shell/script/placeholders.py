"""Texts for what stands in the place of others: marks of what is unknown, `{}` of find."""

from __future__ import annotations

import re

from policyguard.shell.command_line import ANY, GLOB, MANY, MARKS, NAME

_MARK = re.compile(f"[{MARKS}]")
_UP_TO_UNKNOWN = re.compile(f".*([{ANY}{NAME}])", re.DOTALL)
_STAND_INS = {  # bash sets `_` at each command; nothing assigns `$`, its number
    MANY: "${_}",
    ANY: '"${_}"',
    NAME: '"${$}"',
    GLOB: "*",
}


def write_marks(text: str) -> str:
    """Return a command text with what a shell reads as unknown in place of the marks."""
    return _MARK.sub(lambda match: _STAND_INS[match[0]], text)


def find_unknown_end(program: str) -> str:
    """Return a program from its last unknown part on: a folder may end in it."""
    return _UP_TO_UNKNOWN.sub(lambda match: match[1], program)


def put_in(word: str, placeholder: str, values: list[str]) -> list[str]:
    """Return the words that one with a placeholder becomes."""
    return [word.replace(placeholder, one) for one in values] if placeholder in word else [word]
