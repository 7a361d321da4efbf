"""Texts of plain commands, split without a parser."""

from __future__ import annotations

import re

import msgspec

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.shell.words import SIMPLE_WORD, read_simple

_END = r"(?=[ \t\n;|]|&&|$)"
_FILE = r"[012&]?>>?[ \t]*+(?P<file>[\w./-]*[A-Za-z./_][\w./-]*+)"
_TOKEN = lazy_pattern(
    rf"[ \t]*+(?:(?:{_FILE}|[012]?>&[012]){_END}(?P<redirect>)"
    rf"|(?P<operator>&&|\|\||\|(?!&)|;(?!;)|\n)[ \t\n]*+|(?P<word>{SIMPLE_WORD}){_END})[ \t]*+",
    re.ASCII,
)
_FIRST_WORD = lazy_pattern(r"[\w.+-]++(?=[ \t]|$)", re.ASCII)
_ENDS = (";", "\n")
RESERVED = frozenset(
    ["if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac"]
) | {"in", "function", "select", "time", "coproc"}
_NO_COMMANDS = RESERVED | {"declare", "typeset", "export", "readonly", "local", "unset", "unsetenv"}
"""Words at the beginning of a command that the syntax tree tells from commands."""


class PlainCommand(msgspec.Struct, frozen=True):
    """A command of which all is written out."""

    words: list[str]
    files: tuple[str, ...]
    """What its redirections write."""
    is_piped: bool
    """Whether it reads what the command before it writes."""


def split_plain(text: str) -> list[PlainCommand] | None:
    """Return the commands of a text, or None if it takes a parser.

    That is so for expansions, escapes, files that are read, assignments, comments and all that
    stands in brackets or in the background.
    """
    commands: list[PlainCommand] = []
    words: list[str] = []
    files: list[str] = []
    is_redirected = is_piped = False
    operator = ""
    position, end = 0, len(text)
    match_token = _TOKEN.match
    while position < end:
        match = match_token(text, position)
        if match is None:
            return None
        position = match.end()
        kind = match.lastgroup
        if kind == "word":
            if is_redirected:
                return None
            word = match["word"]
            words.append(word if word.isalnum() else _read(word))
        elif kind == "redirect":
            is_redirected = True
            if match["file"] is not None:
                files.append(match["file"])
        else:
            operator = match["operator"]
            if not words:
                if operator != "\n" or commands or files:
                    return None
                continue
            commands.append(PlainCommand(words, tuple(files), is_piped))
            words, files, is_redirected, is_piped = [], [], False, operator == "|"
    if words:
        commands.append(PlainCommand(words, tuple(files), is_piped))
    elif operator not in _ENDS or files or is_redirected:
        return None
    if any("=" in command.words[0] or command.words[0] in _NO_COMMANDS for command in commands):
        return None
    return commands


def _read(word: str) -> str:
    return read_simple(word) if "*" in word or "'" in word or '"' in word else word


def find_first_word(text: str) -> str:
    """Return the program that a text begins with; empty if that takes a parser."""
    match = _FIRST_WORD.match(text.lstrip(" \t"))
    return "" if match is None or match[0] in RESERVED else match[0]
