"""Texts that databases read differently: where one sees a comment, another runs a statement."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from policyguard.sql.errors import SqlError

if TYPE_CHECKING:
    from policyguard.sql.parser import Token

_RUNS_COMMENTS = frozenset(("", "mysql", "doris", "starrocks"))
"""Dialects in which `/*! … */` runs; no name may be one of them."""
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/|[^ \t\r\n]+", re.DOTALL)
_LONE_RETURN = re.compile(r"\r(?!\n)")
_DOLLAR_QUOTE = re.compile(r"\$\w*\$")
_QUOTES = "'\""
_ESCAPED_NAME = re.compile(r"(?:\A|[^\w$])U&\Z", re.IGNORECASE)
"""What stands before the quote of a name with Unicode escapes, `U&"\\0061"`."""


def refuse_ambiguous(text: str, tokens: Iterable[Token], dialect: str) -> None:
    """Raise `SqlError` if databases may read `text` in another way than `tokens` say.

    Without a `dialect`, that is so for backslashes in quotes, backquotes, dollar quotes, nested
    comments, and `--` without a space behind it.
    """
    if _LONE_RETURN.search(text):
        raise SqlError("a carriage return ends a line for some databases only")
    if "\x00" in text:
        raise SqlError("text has control characters")
    end = 0
    brackets = 0
    previous = ""
    for token in tokens:
        _check_between(text[end : token.start], dialect, in_brackets=brackets > 0)
        end = token.end + 1
        source = text[token.start : end]
        if source.startswith(("{%", "{#")) or (source == "{" and text[end : end + 1] == "{"):
            raise SqlError("text is a template: what it becomes is not known")
        quoted = source[-1:] in _QUOTES and len(source) > 1
        if not quoted and not source.isprintable() and not source.startswith("$"):
            raise SqlError("text has control characters")
        before = text[max(0, token.start - 3) : token.start]
        if source.startswith('"') and _ESCAPED_NAME.search(before):
            raise SqlError("names with Unicode escapes are not read; write the name out")
        if not dialect:
            _check_quoted(source, in_brackets=brackets > 0)
            if previous == "->>" and source.isidentifier():
                raise SqlError(
                    "a word behind `->>` begins a statement in some databases only; name the "
                    "dialect, as `sql('postgres')`"
                )
            brackets += (source == "[") - (source == "]")
            previous = source
    _check_between(text[end:], dialect, in_brackets=brackets > 0)
    if not dialect and "$" in text and _DOLLAR_QUOTE.search(text):
        raise SqlError("`$$` quotes in some databases only; name the dialect, as `sql('postgres')`")


def _check_quoted(source: str, *, in_brackets: bool) -> None:
    if source[-1:] in _QUOTES:
        if "\\" in source:
            raise SqlError(
                "a backslash in quotes is an escape for some databases only; name the dialect, "
                "as `sql('mysql')`"
            )
        if in_brackets and "]" in source:
            raise SqlError("brackets quote in some databases only; name the dialect")
    elif "`" in source or "\\" in source:
        raise SqlError("backquotes and backslashes differ; name the dialect, as `sql('mysql')`")


def _check_between(gap: str, dialect: str, *, in_brackets: bool) -> None:
    """Check what stands between two tokens: white space and comments."""
    if not gap or (gap.isspace() and gap.isascii()):
        return
    for match in _COMMENT.finditer(gap):
        part = match[0]
        if part.startswith(("/*!", "/*M!")) and dialect in _RUNS_COMMENTS:
            raise SqlError("MySQL runs the text of such a comment")
        if part.startswith("{"):
            raise SqlError("text is a template: what it becomes is not known")
        if dialect:
            continue
        if in_brackets:
            raise SqlError("brackets quote in some databases only; name the dialect")
        if part.startswith("--") and part[2:3] not in ("", " ", "\t", "\r"):
            raise SqlError("`--` without a space is no comment in MySQL; name the dialect")
        if part.startswith("/*") and "/*" in part[2:]:
            raise SqlError("comments nest in some databases only; name the dialect")
