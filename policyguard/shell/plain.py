"""Texts of plain commands, split without a parser."""

from __future__ import annotations

import re

import msgspec

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.shell.command_line import Redirect
from policyguard.shell.words import BARE, SIMPLE_WORD, read_simple_words

_END = r"(?=[ \t\n;|]|&&|$)"
_FILE = r"[012&]?>>?[ \t]*+([\w./-]*[A-Za-z./_][\w./-]*+)"
_SIMPLE_WORDS = rf"(?:{SIMPLE_WORD}{_END}[ \t]*+)"
# Most words are bare: where those end is quick to see.
_MANY_WORDS = (
    rf"(?>[{BARE}]++[ \t{BARE}]*+(?=[\n;|]|&&|$)"
    rf"|(?:[{BARE}]++[ \t]++)+{_SIMPLE_WORDS}*|{_SIMPLE_WORDS}+)"
)
_TOKEN = lazy_pattern(
    rf"[ \t]*+(?:({_MANY_WORDS})|(?:{_FILE}|[012]?>&[012]){_END}()"
    rf"|(&&|\|\||\|(?!&)|;(?!;)|\n)[ \t\n]*+)[ \t]*+",
    re.ASCII,
)
_WORDS, _WRITTEN, _REDIRECT, _OPERATOR = 1, 2, 3, 4  # the groups of a token
_FIRST_WORD = lazy_pattern(r"[\w.+-]++(?=[ \t]|$)", re.ASCII)
# The grammar takes `- a=1` for an assignment, and no program is called `-`.
_ODD_FIRST = lazy_pattern(r"[={}!]|\.exe\Z|\A-\Z")
_CONTROL = lazy_pattern("[\x00-\x06\x08\x0e-\x1a\x1c-\x1f\ue000-\ue003\ud800-\udfff]")
_ENDS = (";", "\n")
RESERVED = frozenset(
    ["if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac"]
) | {"in", "function", "select", "time", "coproc"}
KEYWORDS = RESERVED | {"{", "!"}
"""Words that are no programs where a command begins."""
_NO_COMMANDS = RESERVED | {"declare", "typeset", "export", "readonly", "local", "unset", "unsetenv"}
"""Words at the beginning of a command that the syntax tree tells from commands."""


class PlainCommand(msgspec.Struct, frozen=True):
    """A command of which all is written out."""

    words: list[str]
    files: tuple[str, ...]
    """What its redirections write."""
    operator: str
    """What stands before it: `&&`, `||`, `|`, `;`, a line's end, or nothing."""

    @property
    def is_piped(self) -> bool:
        """Whether it reads what the command before it writes."""
        return self.operator == "|"

    @property
    def redirects(self) -> tuple[Redirect, ...]:
        """What its redirections write, as of any command."""
        return tuple([Redirect(True, file) for file in self.files])


def split_plain(text: str) -> list[PlainCommand] | None:
    """Return the commands of a text, or None if it takes a parser.

    That is so for expansions, most escapes, files that are read, assignments, comments and all that
    stands in brackets or in the background.
    """
    # Outside of quotes no token has them.
    if ("'" in text or '"' in text) and has_control_characters(text):
        return None
    commands: list[PlainCommand] = []
    words: list[str] = []
    files: tuple[str, ...] = ()
    is_redirected = False
    operator = before = ""
    match = None
    scan = _TOKEN.scanner(text).match  # type: ignore[attr-defined]  # not in typeshed
    while (found := scan()) is not None:
        match = found
        kind = match.lastindex
        if kind == _WORDS:
            if is_redirected:
                return None
            words = read_simple_words(match[_WORDS])
        elif kind == _REDIRECT:
            is_redirected = True
            if match[_WRITTEN] is not None:
                files += (match[_WRITTEN],)
        else:
            operator = match[_OPERATOR]
            if words:
                if _needs_parser(words[0]):
                    return None
                commands.append(PlainCommand(words, files, before))
                words, files, is_redirected, before = [], (), False, operator
            elif operator != "\n" or commands or is_redirected:
                return None
    if match is None or match.end() != len(text):
        return None
    if words:
        if _needs_parser(words[0]):
            return None
        commands.append(PlainCommand(words, files, before))
    elif operator not in _ENDS or is_redirected:
        return None
    return commands


def has_control_characters(text: str) -> bool:
    """Whether a text has characters that no command needs, such as those that stand for marks."""
    return not text.isprintable() and _CONTROL.search(text) is not None


def _needs_parser(first: str) -> bool:
    return first in _NO_COMMANDS or _ODD_FIRST.search(first) is not None


def find_first_word(text: str) -> str:
    """Return the program that a text begins with; empty if that takes a parser."""
    match = _FIRST_WORD.match(text.lstrip(" \t"))
    return "" if match is None or match[0] in RESERVED else match[0]
