"""A small parser of protobuf's text format, as far as cel-spec's test files use it.

A message becomes a dict of lists: each field name maps to all its values, in order. A value is a
message, a str, a bytes (kept apart by the caller's choice), an int, a float, a bool or a name.
"""

from __future__ import annotations

import re
from typing import Any

_TOKEN = re.compile(
    r"\s+|#[^\n]*"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<any>\[[\w./]+\])"
    r"|(?P<number>-?(?:0x[0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?f?|inf\b|nan\b))"
    r"|(?P<name>-?[A-Za-z_]\w*)"
    r"|(?P<mark>[{}<>\[\]:,;])"
)
_ESCAPE = re.compile(
    rb"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.DOTALL
)
_LETTERS = {
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"v": b"\v",
}

Message = dict[str, list[Any]]


class Text(bytes):
    """A quoted string: its bytes, and `.text` for a string field."""

    @property
    def text(self) -> str:
        return self.decode()


def parse(source: str) -> Message:
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(source):
        token = _TOKEN.match(source, position)
        if token is None:
            raise ValueError(f"unexpected text at {source[position : position + 30]!r}")
        if token.lastgroup is not None:
            tokens.append((token.lastgroup, token[0]))
        position = token.end()
    tokens.reverse()
    return _message(tokens, None)


def _message(tokens: list[tuple[str, str]], end: str | None) -> Message:
    result: Message = {}
    while tokens:
        kind, text = tokens.pop()
        if text == end:
            return result
        if text in (",", ";"):
            continue
        name = text.strip("[]")
        if tokens[-1][1] == ":":
            tokens.pop()
        if tokens[-1] == ("mark", "["):
            tokens.pop()
            while tokens[-1][1] != "]":
                result.setdefault(name, []).append(_value(tokens))
                if tokens[-1][1] == ",":
                    tokens.pop()
            tokens.pop()
            continue
        assert kind in ("name", "any"), text
        result.setdefault(name, []).append(_value(tokens))
    assert end is None
    return result


def _value(tokens: list[tuple[str, str]]) -> Any:
    kind, text = tokens.pop()
    if text in ("{", "<"):
        return _message(tokens, "}" if text == "{" else ">")
    if kind == "string":
        parts = [text]
        while tokens and tokens[-1][0] == "string":
            parts.append(tokens.pop()[1])
        return Text(b"".join(map(_unquote, parts)))
    if kind == "number":
        if re.fullmatch(r"-?\d+", text):
            return int(text)
        if "x" in text:
            return int(text, 16)
        return float(text.removesuffix("f") if "inf" not in text else text)
    return {"true": True, "false": False, "-inf": float("-inf"), "-nan": float("nan")}.get(
        text, text
    )


def _unquote(quoted: str) -> bytes:
    def escape(found: re.Match[bytes]) -> bytes:
        text = found[1]
        if text[:1] == b"x":
            return bytes([int(text[1:], 16)])
        if text[:1] in (b"u", b"U"):
            return chr(int(text[1:], 16)).encode()
        if text[:1].isdigit():
            return bytes([int(text, 8)])
        return _LETTERS.get(text, text)

    return _ESCAPE.sub(escape, quoted[1:-1].encode())
