"""A form of a command line in which only what it does matters, not how it is written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from policyguard.shell.options import WrapperOptions
from policyguard.shell.reader import ShellReader
from policyguard.shell.rewriting import MARK, HereDocument, lift
from policyguard.shell.statements import CONTROL, EXPRESSIONS
from policyguard.shell.syntax_tree import Node, parse
from policyguard.shell.words import ANSI_C_ESCAPE, read_ansi_c_escape

_WORDS = EXPRESSIONS - {"test_command", "binary_expression", "unary_expression"}
_REDIRECTS = frozenset(("file_redirect", "herestring_redirect"))
_UNSAFE = re.compile(r"[^\w./:=@%+,-]")
_BRACED = re.compile(r"\$\{(\w+)\}")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_IN_DOUBLE_QUOTES = re.compile(r'\\([$`"\\])')
_CLOSING = frozenset(("done", "fi", "}", "then", "do", "else", "elif", "esac"))
_SEPARATORS = ("&&", ";")


class _TooDeepError(Exception):
    pass


def normal_form(text: str, reader: ShellReader) -> str:
    """Return `text` so that two texts which do the same in other words become equal.

    Comments, spaces, the style of quotes, leading `cd FOLDER &&` and prefixes such as `sudo` or
    `timeout 60` (`prefixes` of the data) are left out. Everything else stays, in its order. A text
    that cannot be parsed, or is beyond the bounds, is returned without the spaces around it.
    """
    bounds = reader.facts.bounds
    if len(text) > bounds.chars or CONTROL.search(text):
        return text.strip()
    lifted, documents = lift(text)
    source = lifted.encode()
    try:
        root = parse(source, bounds.milliseconds)
        if root is None or root.has_error:
            return text.strip()
        tokens = list(_Writer(reader, source, documents).write(root))
    except _TooDeepError:
        return text.strip()
    while tokens and tokens[-1] == ";":
        tokens.pop()
    while len(tokens) > 3 and tokens[0] == "cd" and tokens[2] in _SEPARATORS:
        tokens = tokens[3:]
    return " ".join(tokens)


class _Writer:
    def __init__(self, reader: ShellReader, source: bytes, documents: list[HereDocument]) -> None:
        self._reader = reader
        self._source = source
        self._documents = documents
        self._depth = 0

    def write(self, node: Node) -> Iterator[str]:
        """Yield the tokens of a statement."""
        self._depth += 1
        if self._depth > self._reader.facts.bounds.depth:
            raise _TooDeepError
        kind = node.type
        if kind == "command":
            yield from self._write_command(node)
        elif kind in _WORDS:
            yield self._write_word(node)
        elif kind in _REDIRECTS:
            yield self._write_redirect(node)
        elif kind != "comment":
            yield from self._write_children(node)
        self._depth -= 1

    def _write_children(self, node: Node) -> Iterator[str]:
        children = node.children
        if not children:
            yield self._text(node)
            return
        separated = True  # whether a statement may follow without `;`
        last = ""
        for child in children:
            if child.type == "comment":
                continue
            if not child.is_named:
                mark = ";" if child.type == "\n" else child.type
                if mark in _CLOSING and not separated:
                    yield ";"
                if mark != ";" or last not in (";", ""):
                    yield mark
                last, separated = mark, True
                continue
            if child.type == "do_group" and last != ";":
                yield ";"
            is_statement = child.type not in _WORDS and child.type not in _REDIRECTS
            if is_statement and not separated:
                yield ";"
            for last in self.write(child):
                yield last
            separated = not is_statement

    def _write_command(self, node: Node) -> Iterator[str]:
        assignments: list[str] = []
        words: list[str] = []
        redirects: list[str] = []
        for child in node.named_children:
            if child.type in _REDIRECTS:
                redirects.append(self._write_redirect(child))
            elif child.type == "variable_assignment":
                assignments.append("".join(self.write(child)))
            else:
                words.append(self._write_word(child))
        if not assignments:
            words = self._drop_prefixes(words)
        yield from assignments
        yield from words
        yield from redirects

    def _drop_prefixes(self, words: list[str]) -> list[str]:
        while len(words) > 1 and words[0] in self._reader.prefixes:
            wrapper = self._reader.wrappers.find(words[0])
            if wrapper is None:
                return words
            options = WrapperOptions(wrapper)
            rest = words[options.read(words[1:]) + wrapper.operands + 1 :]
            if not rest or (wrapper.assignments and "=" in rest[0]):
                return words
            words = rest
        return words

    def _write_redirect(self, node: Node) -> str:
        text = ""
        for child in node.children:
            if child.type == "file_descriptor" or not child.is_named:
                text += self._text(child)
            else:
                text += self._write_word(child)
        return text

    def _write_word(self, node: Node) -> str:
        return self._write_part(node, quoted=False) or "''"

    def _write_part(self, node: Node, *, quoted: bool) -> str:
        kind = node.type
        text = self._text(node)
        if kind == "raw_string":
            return _escape(text[1:-1])
        if kind == "ansi_c_string":
            return _escape(ANSI_C_ESCAPE.sub(read_ansi_c_escape, text[2:-1]))
        if kind in ("simple_expansion", "expansion"):
            text = _BRACED.sub(r"$\1", text) if _BRACED.fullmatch(text) else text
            return f'"{text}"' if quoted else text
        if kind == "command_substitution":
            inside = " ".join(token for child in node.named_children for token in self.write(child))
            return f'"$({inside})"' if quoted else f"$({inside})"
        if kind == "process_substitution":
            inside = " ".join(token for child in node.named_children for token in self.write(child))
            return f"{text[0]}({inside})"
        if kind == "string":
            return self._write_parts(node, 1, quoted=True)
        if node.named_child_count:
            return self._write_parts(node, 0, quoted=quoted)
        return self._write_text(text, quoted=quoted)

    def _write_parts(self, node: Node, margin: int, *, quoted: bool) -> str:
        position, end = node.start_byte + margin, node.end_byte - margin
        parts: list[str] = []
        for child in node.named_children:
            if child.type in ("string_content", "word", "number"):
                continue
            gap = self._source[position : child.start_byte].decode()
            parts += (
                self._write_text(gap, quoted=quoted),
                self._write_part(child, quoted=quoted),
            )
            position = child.end_byte
        parts.append(self._write_text(self._source[position:end].decode(), quoted=quoted))
        return "".join(parts)

    def _write_text(self, text: str, *, quoted: bool) -> str:
        if quoted:
            return _escape(_IN_DOUBLE_QUOTES.sub(r"\1", text))
        if text.startswith(MARK) and text[1:].isdigit():
            document = self._documents[int(text[1:])]
            return f"<{'q' if document.quoted else ''}{_escape(document.body)}"
        return _ESCAPED.sub(lambda match: _escape(match[1]), text)

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()


def _escape(text: str) -> str:
    return _UNSAFE.sub(lambda match: "\\" + match[0], text)
