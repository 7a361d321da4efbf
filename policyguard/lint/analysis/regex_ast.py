r"""A syntax tree of RE2 patterns, from which matching literals are derived.

The parser accepts the part of RE2's syntax that policies use and rejects the rest. Assertions (`^`,
`\b`) are nodes without width. The tree only suggests texts; RE2 itself decides what matches.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass

_MAX_DEPTH = 40
_FLAGS = re.compile(r"\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAMED = re.compile(r"\?P?<\w+>")
_COUNT = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_ESCAPED = re.compile(r"\\(?:x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|([0-7]{3})|(.))", re.DOTALL)
_POSIX = re.compile(r"\[:(\^?)(\w+):\]")

_ASCII = frozenset(map(chr, range(128)))
_CLASSES = {
    "d": frozenset(string.digits),
    "w": frozenset(string.ascii_letters + string.digits + "_"),
    "s": frozenset("\t\n\f\r "),
}
_NAMES = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "digit": _CLASSES["d"],
    "lower": frozenset(string.ascii_lowercase),
    "punct": frozenset(string.punctuation),
    "space": frozenset("\t\n\v\f\r "),
    "upper": frozenset(string.ascii_uppercase),
    "word": _CLASSES["w"],
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class UnsupportedRegexError(ValueError):
    """The pattern uses unsupported syntax."""


@dataclass(frozen=True)
class RegexNode:
    """A part of a pattern, with its offsets."""

    start: int
    end: int


@dataclass(frozen=True)
class Literal(RegexNode):
    """One character, in either case if `ignore_case`."""

    character: str
    ignore_case: bool


@dataclass(frozen=True)
class CharacterSet(RegexNode):
    """One of several characters: the ASCII ones, and others if `has_non_ascii`."""

    characters: frozenset[str]
    has_non_ascii: bool


@dataclass(frozen=True)
class Assertion(RegexNode):
    """A zero-width assertion."""


@dataclass(frozen=True)
class Concatenation(RegexNode):
    """Nodes in sequence."""

    items: tuple[RegexNode, ...]


@dataclass(frozen=True)
class Alternation(RegexNode):
    """One of several nodes."""

    options: tuple[RegexNode, ...]


@dataclass(frozen=True)
class Repetition(RegexNode):
    """A node repeated between `min_count` and `max_count` times (None: unbounded)."""

    item: RegexNode
    min_count: int
    max_count: int | None


def parse_regex(pattern: str) -> RegexNode:
    """Parse a valid RE2 pattern. Raise `UnsupportedRegexError`."""
    parser = _Parser(pattern)
    tree = parser.alternation(frozenset(), 0)
    if parser.position < len(pattern):
        raise UnsupportedRegexError(pattern)
    return tree


def literals(node: RegexNode) -> Iterator[Literal]:
    """Yield the literal characters of a pattern in order."""
    match node:
        case Literal():
            yield node
        case Concatenation(items=parts) | Alternation(options=parts):
            for part in parts:
                yield from literals(part)
        case Repetition(item=item):
            yield from literals(item)


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.flags: frozenset[str] = frozenset()

    def alternation(self, flags: frozenset[str], depth: int) -> RegexNode:
        """Parse up to a closing parenthesis or the end."""
        if depth > _MAX_DEPTH:
            raise UnsupportedRegexError(self.pattern)
        start = self.position
        self.flags = flags
        options = [self.concatenation(depth)]
        while self._take("|"):
            options.append(self.concatenation(depth))
        if len(options) == 1:
            return options[0]
        return Alternation(start, self.position, tuple(options))

    def concatenation(self, depth: int) -> RegexNode:
        start = self.position
        items: list[RegexNode] = []
        while self.position < len(self.pattern) and self.pattern[self.position] not in "|)":
            item = self.atom(depth)
            if item is not None:
                items.append(self.repetition(item))
        if len(items) == 1:
            return items[0]
        return Concatenation(start, self.position, tuple(items))

    def atom(self, depth: int) -> RegexNode | None:
        start = self.position
        character = self.pattern[start]
        if character == "(":
            return self.group(depth)
        if character == "[":
            return self.bracket()
        if character == "\\":
            return self.escape()
        self.position += 1
        if character in "^$":
            return Assertion(start, self.position)
        if character == ".":
            line = _ASCII if "s" in self.flags else _ASCII - {"\n"}
            return CharacterSet(start, self.position, line, has_non_ascii=True)
        if character in "*+?":
            raise UnsupportedRegexError(self.pattern)
        return Literal(start, self.position, character, "i" in self.flags)

    def group(self, depth: int) -> RegexNode | None:
        outside = self.flags
        self.position += 1
        if named := _NAMED.match(self.pattern, self.position):
            self.position = named.end()
        elif flags := _FLAGS.match(self.pattern, self.position):
            self.position = flags.end()
            self.flags = outside.union(flags[1]).difference(flags[2] or "")
            if flags[3] == ")":
                return None  # the flags apply to the rest of the group
        elif self.pattern.startswith("?", self.position):
            raise UnsupportedRegexError(self.pattern)
        found = self.alternation(self.flags, depth + 1)
        if not self._take(")"):
            raise UnsupportedRegexError(self.pattern)
        self.flags = outside
        return found

    def repetition(self, item: RegexNode) -> RegexNode:
        while self.position < len(self.pattern):
            count = _COUNT.match(self.pattern, self.position)
            character = self.pattern[self.position]
            if count:
                low = int(count[1])
                high = (int(count[3]) if count[3] else None) if count[2] else low
                self.position = count.end()
            elif character in "*+?":
                low, high = int(character == "+"), 1 if character == "?" else None
                self.position += 1
            else:
                break
            self._take("?")
            item = Repetition(item.start, self.position, item, low, high)
        return item

    def escape(self) -> RegexNode:
        start = self.position
        if self.pattern.startswith(r"\Q", start):
            raise UnsupportedRegexError(self.pattern)
        found = self._escape_value()
        if isinstance(found, str):
            return Literal(start, self.position, found, "i" in self.flags)
        if found is None:
            return Assertion(start, self.position)
        return self.character_set(start, *found)

    def bracket(self) -> RegexNode:
        start = self.position
        self.position += 1
        negated = self._take("^")
        inside: frozenset[str] = frozenset()
        has_non_ascii = False
        first = True
        while first or not self.pattern.startswith("]", self.position):
            first = False
            characters, non_ascii = self._member()
            inside |= characters
            has_non_ascii = has_non_ascii or non_ascii
        self.position += 1
        found = self.character_set(start, inside, has_non_ascii)
        if negated:
            return CharacterSet(start, self.position, _ASCII - found.characters, has_non_ascii=True)
        return found

    def character_set(
        self, start: int, characters: frozenset[str], has_non_ascii: bool
    ) -> CharacterSet:
        if "i" in self.flags:
            characters |= {case for one in characters for case in (one.lower(), one.upper())}
            # K (Kelvin) and ſ fold to `k` and `s`.
            has_non_ascii = has_non_ascii or not characters.isdisjoint("ks")
        return CharacterSet(start, self.position, characters, has_non_ascii=has_non_ascii)

    def _member(self) -> tuple[frozenset[str], bool]:
        """Parse a class, range or character within brackets."""
        if posix := _POSIX.match(self.pattern, self.position):
            self.position = posix.end()
            characters = _NAMES.get(posix[2])
            if characters is None:
                raise UnsupportedRegexError(self.pattern)
            return (_ASCII - characters, True) if posix[1] else (characters, False)
        low = self._character()
        if not isinstance(low, str):
            return low
        high: str | tuple[frozenset[str], bool] = low
        rest = self.pattern[self.position : self.position + 2]
        if rest[:1] == "-" and rest[1:] not in ("", "]"):
            self.position += 1
            high = self._character()
        if not isinstance(high, str):
            raise UnsupportedRegexError(self.pattern)
        top = min(ord(high), 127)
        return frozenset(map(chr, range(ord(low), top + 1))), ord(high) > 127

    def _character(self) -> str | tuple[frozenset[str], bool]:
        if self.position >= len(self.pattern):
            raise UnsupportedRegexError(self.pattern)
        if self.pattern[self.position] != "\\":
            self.position += 1
            return self.pattern[self.position - 1]
        found = self._escape_value()
        if found is None:
            raise UnsupportedRegexError(self.pattern)
        return found

    def _escape_value(self) -> str | tuple[frozenset[str], bool] | None:
        r"""Parse an escape: a character, a class, or None for an assertion."""
        escape = _ESCAPED.match(self.pattern, self.position)
        if escape is None:
            raise UnsupportedRegexError(self.pattern)
        self.position = escape.end()
        if number := escape[1] or escape[2]:
            return chr(int(number, 16))
        if escape[3]:
            return chr(int(escape[3], 8))
        letter = escape[4]
        if letter.lower() in _CLASSES:
            known = _CLASSES[letter.lower()]
            return (known, False) if letter.islower() else (_ASCII - known, True)
        if letter in "AbBz":
            return None
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter.isalnum():
            raise UnsupportedRegexError(self.pattern)
        return letter

    def _take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.position):
            self.position += len(text)
            return True
        return False
