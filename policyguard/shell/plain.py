"""Lines of plain commands, split without a parser."""

from __future__ import annotations

import re

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.shell.words import SIMPLE_WORD, read_simple

_TO_NOWHERE = r"2>&1|[12&]?>[ ]?/dev/null"
_OPERATOR = r"&&|\|\|?|;"
_NEXT = rf"[ \t]++(?:{SIMPLE_WORD}|{_TO_NOWHERE}|{_OPERATOR})(?=[ \t;]|$)|[ \t]*+;"
_LINE = lazy_pattern(rf"[ \t]*+{SIMPLE_WORD}(?:{_NEXT})*+[ \t]*+", re.ASCII)
_PART = lazy_pattern(rf"({_TO_NOWHERE})|({_OPERATOR})|{SIMPLE_WORD}", re.ASCII)
_FIRST_WORD = lazy_pattern(r"[\w.+-]++(?=[ \t]|$)", re.ASCII)
RESERVED = frozenset(
    ["if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac"]
) | {"in", "function", "select", "time", "coproc"}


def split_plain(text: str) -> list[list[str]] | None:
    """Return the words of each command of a line, or None if it takes a parser.

    That is so for expansions, escapes, redirections into files, assignments, and several lines.
    """
    if not _LINE.fullmatch(text):
        return None
    commands: list[list[str]] = [[]]
    for match in _PART.finditer(text):
        if match.lastindex == 2:
            commands.append([])
        elif match.lastindex is None:
            commands[-1].append(read_simple(match[0]))
    if not commands[-1] and text.rstrip().endswith(";"):
        commands.pop()
    for words in commands:
        if not words or words[0] in RESERVED or "=" in words[0]:
            return None
    return commands


def find_first_word(text: str) -> str:
    """Return the program that a text begins with; empty if that takes a parser."""
    match = _FIRST_WORD.match(text.lstrip(" \t"))
    return "" if match is None or match[0] in RESERVED else match[0]
