r"""What a pattern says, as a tree: to look for texts that it finds. RE2 alone judges what matches.

This reads the part of RE2's syntax that policies use. What it does not know it refuses, and then
nothing is claimed about the pattern. Assertions (`^`, `\b`) are kept and have no width; whether a
text is found where they stand is asked of RE2.
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
    """The pattern has something that is not read here."""


@dataclass(frozen=True)
class RegexNode:
    """A part of a pattern, and where it stands in its text."""

    start: int
    end: int


@dataclass(frozen=True)
class Literal(RegexNode):
    """One character; with `fold`, in either case."""

    character: str
    ignore_case: bool


@dataclass(frozen=True)
class CharacterSet(RegexNode):
    """One character of several. `characters` are those in ASCII; `open`: there are others too."""

    characters: frozenset[str]
    has_non_ascii: bool


@dataclass(frozen=True)
class Assertion(RegexNode):
    """Something about the place alone."""


@dataclass(frozen=True)
class Concatenation(RegexNode):
    """One after the other."""

    items: tuple[RegexNode, ...]


@dataclass(frozen=True)
class Alternation(RegexNode):
    """One of these."""

    options: tuple[RegexNode, ...]


@dataclass(frozen=True)
class Repetition(RegexNode):
    """The same `least` to `most` times; without `most`, any number."""

    item: RegexNode
    min_count: int
    max_count: int | None


def parse_regex(pattern: str) -> RegexNode:
    """The tree of a pattern that RE2 takes. Raises `UnreadError`."""
    reader = _Parser(pattern)
    found = reader.alternation(frozenset(), 0)
    if reader.position < len(pattern):
        raise UnsupportedRegexError(pattern)
    return found


def literals(node: RegexNode) -> Iterator[Literal]:
    """All single characters of a pattern, in the order in which they are written."""
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
        """What stands up to a closing parenthesis, or to the end."""
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
                return None  # they hold for what comes behind, up to the end of the group
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
                least = int(count[1])
                most = (int(count[3]) if count[3] else None) if count[2] else least
                self.position = count.end()
            elif character in "*+?":
                least, most = int(character == "+"), 1 if character == "?" else None
                self.position += 1
            else:
                break
            self._take("?")
            item = Repetition(item.start, self.position, item, least, most)
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
        beyond = False
        first = True
        while first or not self.pattern.startswith("]", self.position):
            first = False
            characters, wide = self._member()
            inside |= characters
            beyond = beyond or wide
        self.position += 1
        found = self.character_set(start, inside, beyond)
        if negated:
            return CharacterSet(start, self.position, _ASCII - found.characters, has_non_ascii=True)
        return found

    def character_set(self, start: int, characters: frozenset[str], beyond: bool) -> CharacterSet:
        if "i" in self.flags:
            characters |= {case for one in characters for case in (one.lower(), one.upper())}
            beyond = beyond or bool(characters & {"k", "s"})  # K (Kelvin) and ſ fold to them
        return CharacterSet(start, self.position, characters, has_non_ascii=beyond)

    def _member(self) -> tuple[frozenset[str], bool]:
        """What one part of a bracket stands for: a class, a range or a character."""
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
        r"""A character, or a class, or None for an assertion; the position goes behind it."""
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
