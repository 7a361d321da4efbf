"""Texts without what the grammar misreads: here-documents lifted, continued lines joined."""

from __future__ import annotations

import re
from dataclasses import dataclass

MARK = "\x04"
"""Begins the file name that stands for a lifted here-document."""

_STOPS = re.compile(
    r"""\\. | ' | " | ` | \$'(?:[^'\\]|\\.)*' | \$?\(\( | \)\) | \$\{ | \} | \$?\( | \)"""
    r"""| <<< | <<-?[ \t]* | \n | (?:(?<=[\s;&|()`])|^)\#[^\n]*""",
    re.VERBOSE | re.DOTALL,
)
_DELIMITER = re.compile(r"""(?:\\.|'[^']*'|"(?:[^"\\]|\\.)*"|[^\s;&|<>()'"\\])+""", re.DOTALL)
_QUOTING = re.compile(r"\\(.)|['\"]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class HereDocument:
    """The body of a here-document; `quoted` says that nothing in it is expanded."""

    body: str
    quoted: bool


@dataclass(slots=True)
class _Pending:
    delimiter: str
    quoted: bool
    strip_tabs: bool


def lift(text: str) -> tuple[str, list[HereDocument]]:
    """Return `text` with each here-document replaced by a redirection from a marked name.

    Continued lines are joined, because the grammar ends a word there.
    The document of the name `MARK` + `"0"` is the first one returned. A document without its last
    line reaches to the end of the text, as in bash.
    """
    if "<<" not in text and "\\\n" not in text:
        return text, []
    kept: list[str] = []
    documents: list[HereDocument] = []
    pending: list[_Pending] = []
    open_: list[str] = []  # the constructs around the position, by their first character(s)
    position = copied = 0
    while stop := _STOPS.search(text, position):
        mark = stop[0]
        position = stop.end()
        inner = open_[-1] if open_ else ""
        if inner == '"' and mark[0] not in ('"', "$", "`", "\\", "\n"):
            continue
        if mark == "\\\n":
            kept.append(text[copied : stop.start()])
            copied = position
            continue
        if mark == "'":
            end = text.find("'", position)
            position = len(text) if end < 0 else end + 1
        elif mark in ('"', "`"):
            _toggle(open_, mark)
        elif mark == "$((" or (mark == "((" and inner != '"'):
            open_.append("((")
        elif mark == "))" and inner == "((":
            open_.pop()
        elif mark == "))":
            open_[:] = open_[: -min(2, len(open_))] if open_ else open_
        elif mark in ("$(", "("):
            open_.append("(")
        elif mark == "${":
            open_.append("{")
        elif (mark == ")" and inner == "(") or (mark == "}" and inner == "{"):
            open_.pop()
        elif mark == "\n" and pending:
            kept.append(text[copied:position])
            position = _read_bodies(text, position, pending, documents)
            copied = position
            pending.clear()
        elif mark[:2] == "<<" and mark != "<<<" and inner not in ("((", "{"):
            name = _DELIMITER.match(text, position)
            if name is None:
                continue
            kept += (text[copied : stop.start()], f"<{MARK}{len(documents) + len(pending)} ")
            word = name[0]
            quoted = any(quote in word for quote in "\\'\"")
            pending.append(_Pending(_QUOTING.sub(r"\1", word), quoted, "<<-" in mark))
            position = copied = name.end()
    kept.append(text[copied:])
    documents += (HereDocument("", item.quoted) for item in pending)
    return "".join(kept), documents


def _toggle(open_: list[str], quote: str) -> None:
    if open_ and open_[-1] == quote:
        open_.pop()
    else:
        open_.append(quote)


def _read_bodies(
    text: str, position: int, pending: list[_Pending], documents: list[HereDocument]
) -> int:
    """Add the documents that begin at `position`; return where the last one ends."""
    for item in pending:
        lines: list[str] = []
        while position < len(text):
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            line = text[position:end]
            position = end + 1
            if item.strip_tabs:
                line = line.lstrip("\t")
            if line == item.delimiter:
                break
            # A substitution may close on the last line: `$(cat <<X … X)`.
            if line.startswith(item.delimiter) and line[len(item.delimiter) :].lstrip()[:1] == ")":
                position = end - len(line) + len(item.delimiter)
                break
            lines.append(line)
        documents.append(HereDocument("\n".join(lines), item.quoted))
    return min(position, len(text))
