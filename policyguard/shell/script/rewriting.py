"""Rewrites a text where the grammar of bash misreads it, so that both read the same.

- Here-documents with more of a line behind them are errors to the grammar: they are lifted out.
- It takes the descriptor of `0< file` for a word: it is left out.
- `` `a` `b` `` on one line is one substitution to it: backquotes become `$(…)`, and a `$` in front
  of them is escaped.
- It ends a word at a continued line, and takes a line that begins with an escape for a part of the
  line before: continued lines are joined, and such an escape becomes a quoted character.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MARK = "\x04"
"""Begins the file name that stands for a lifted here-document."""

_STOPS = re.compile(
    r"""\\. | ' | " | ` | \$?\(\( | \)\) | \$\{ | \} | \$?\( | \) | [\w$]\[ | \]"""
    r"""| <<< | <<-?[ \t]* | (?<=\s)0(?=<) | \n | (?:(?<=[\s;&|()<>])|^)\#""",
    re.VERBOSE | re.DOTALL,
)
_DELIMITER = re.compile(r"""(?:\\.|'[^']*'|"(?:[^"\\]|\\.)*"|[^\s;&|<>()'"\\])+""", re.DOTALL)
_QUOTING = re.compile(r"\\(.)|['\"]", re.DOTALL)
_ANSI_C_REST = re.compile(r"(?:[^'\\]|\\.)*'?", re.DOTALL)
_BACKQUOTED = re.compile(r"((?:[^`\\]|\\.)*)`", re.DOTALL)


@dataclass(frozen=True, slots=True)
class HereDocument:
    """The body of a here-document; `quoted` says that nothing in it is expanded."""

    body: str
    quoted: bool


def lift(text: str) -> tuple[str, list[HereDocument]]:
    """Return `text` as the grammar reads it right, and its here-documents.

    Each is replaced by a redirection from a file whose name is `MARK` and its index. A document
    without its last line reaches to the end of the text, as in bash.
    """
    if (
        "<<" not in text
        and "`" not in text
        and "0<" not in text
        and not ("\n" in text and "\\" in text)
    ):
        return text, []
    documents: list[HereDocument] = []
    return _Rewriter(text, documents).rewrite(), documents


@dataclass(slots=True)
class _Pending:
    index: int
    delimiter: str
    quoted: bool
    strip_tabs: bool


class _Rewriter:
    """One pass over a text, which knows the quotes and brackets around its position."""

    def __init__(self, text: str, documents: list[HereDocument]) -> None:
        self._text = text
        self._documents = documents
        self._pending: list[_Pending] = []
        self._open: list[str] = []
        self._kept: list[str] = []
        self._copied = 0
        self._position = 0

    def rewrite(self) -> str:
        while stop := _STOPS.search(self._text, self._position):
            self._position = stop.end()
            self._read(stop[0], stop.start(), self._open[-1] if self._open else "")
        self._kept.append(self._text[self._copied :])
        return "".join(self._kept)

    def _replace(self, start: int, new: str) -> None:
        """Put `new` for what stands between `start` and the position."""
        self._kept += (self._text[self._copied : start], new)
        self._copied = self._position

    def _read(self, mark: str, start: int, inner: str) -> None:
        if mark[0] == "\\":
            self._read_escape(mark, start, inner)
        elif mark == "`":
            self._read_backquotes(start, inner)
        elif mark == '"':
            self._toggle()
        elif mark in ("$((", "$(", "${"):
            self._open.append(mark[1:] if mark == "$((" else mark)
        elif inner == '"':
            self._position = start + 1
        elif mark == "'":
            self._skip_quoted(start)
        elif mark == "0":
            if inner not in ("${", "((", "["):
                self._replace(start, "")
        elif mark in ("((", "("):
            self._open.append(mark)
        elif mark[-1] == "[":
            self._open.append("[")
        elif mark in ("))", ")", "}", "]"):
            self._close(mark, start, inner)
        elif mark == "\n":
            if inner == "[":
                self._open.pop()
            if self._pending:
                self._read_bodies(in_substitution=inner == "$(")
        elif mark == "#":
            if inner not in ("${", "((", "["):
                end = self._text.find("\n", self._position)
                self._position = len(self._text) if end < 0 else end
        elif mark != "<<<" and inner not in ("${", "((", "["):
            self._note_document(start, strip_tabs="-" in mark)

    def _read_escape(self, mark: str, start: int, inner: str) -> None:
        if mark == "\\\n":
            self._replace(start, "")
        elif inner != '"' and self._begins_line(start):
            self._replace(start, '"\'"' if mark[1] == "'" else f"'{mark[1]}'")

    def _begins_line(self, position: int) -> bool:
        text = self._text
        while position > 0 and text[position - 1] in " \t":
            position -= 1
        return position > 0 and text[position - 1] == "\n"

    def _read_backquotes(self, start: int, inner: str) -> None:
        match = _BACKQUOTED.match(self._text, self._position)
        if match is None:
            return
        self._position = match.end()
        escapes = r'\\([`\\$"])' if inner == '"' else r"\\([`\\$])"
        inside = _Rewriter(re.sub(escapes, r"\1", match[1]), self._documents).rewrite()
        end = "\n)" if "#" in inside else ")"
        if self._is_lone_dollar(start):
            self._replace(start - 1, f"\\$$({inside}{end}")
        else:
            self._replace(start, f"$({inside}{end}")

    def _is_lone_dollar(self, position: int) -> bool:
        """Whether a `$` in front of a position means itself: `` "a$`b`" ``."""
        before = self._text[self._copied : position]
        rest = before.rstrip("$")
        is_escaped = (len(rest) - len(rest.rstrip("\\"))) % 2
        return (len(before) - len(rest) - is_escaped) % 2 == 1

    def _toggle(self) -> None:
        if self._open and self._open[-1] == '"':
            self._open.pop()
        else:
            self._open.append('"')

    def _skip_quoted(self, start: int) -> None:
        """Skip `'…'`, or `$'…'` with its escapes; in `"${x:-'}"` it is no quote."""
        around = next((mark for mark in reversed(self._open) if mark != "${"), "")
        if around == '"' and self._open[-1] == "${":
            return
        if start > 0 and self._text[start - 1] == "$":
            rest = _ANSI_C_REST.match(self._text, self._position)
            self._position = rest.end() if rest else self._position
        else:
            end = self._text.find("'", self._position)
            self._position = len(self._text) if end < 0 else end + 1

    def _close(self, mark: str, start: int, inner: str) -> None:
        if mark == "))" and inner != "((":
            self._position = start + 1
            mark = ")"
        if inner in {")": ("(", "$("), "}": ("${",), "]": ("[",), "))": ("((",)}[mark]:
            self._open.pop()

    def _note_document(self, start: int, *, strip_tabs: bool) -> None:
        name = _DELIMITER.match(self._text, self._position)
        if name is None:
            return
        word = name[0]
        self._position = name.end()
        index = len(self._documents)
        self._replace(start, f"<{MARK}{index} ")
        quoted = any(quote in word for quote in "\\'\"")
        self._documents.append(HereDocument("", quoted))
        self._pending.append(_Pending(index, _QUOTING.sub(r"\1", word), quoted, strip_tabs))

    def _read_bodies(self, *, in_substitution: bool) -> None:
        """Lift the documents that begin at the position."""
        self._kept.append(self._text[self._copied : self._position])
        for item in self._pending:
            self._read_body(item, in_substitution=in_substitution)
        self._pending.clear()
        self._copied = self._position

    def _read_body(self, item: _Pending, *, in_substitution: bool) -> None:
        text = self._text
        size = len(item.delimiter)
        lines: list[str] = []
        while self._position < len(text):
            end = text.find("\n", self._position)
            end = len(text) if end < 0 else end
            line = text[self._position : end]
            self._position = min(end + 1, len(text))
            if item.strip_tabs:
                line = line.lstrip("\t")
            if line == item.delimiter:
                break
            if in_substitution and line.startswith(item.delimiter) and ")" in line[size:]:
                self._position = end - len(line) + size
                break
            lines.append(line)
        self._documents[item.index] = HereDocument("\n".join(lines), item.quoted)
