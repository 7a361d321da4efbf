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

_DEEPEST = 40
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


class UnreadError(ValueError):
    """The pattern has something that is not read here."""


@dataclass(frozen=True)
class Node:
    """A part of a pattern, and where it stands in its text."""

    start: int
    end: int


@dataclass(frozen=True)
class Literal(Node):
    """One character; with `fold`, in either case."""

    character: str
    fold: bool


@dataclass(frozen=True)
class OneOf(Node):
    """One character of several. `characters` are those in ASCII; `open`: there are others too."""

    characters: frozenset[str]
    open: bool


@dataclass(frozen=True)
class Assertion(Node):
    """Something about the place alone."""


@dataclass(frozen=True)
class Sequence(Node):
    """One after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Choice(Node):
    """One of these."""

    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat(Node):
    """The same `least` to `most` times; without `most`, any number."""

    item: Node
    least: int
    most: int | None


def read(pattern: str) -> Node:
    """The tree of a pattern that RE2 takes. Raises `UnreadError`."""
    reader = _Reader(pattern)
    found = reader.choice(frozenset(), 0)
    if reader.position < len(pattern):
        raise UnreadError(pattern)
    return found


def literals(node: Node) -> Iterator[Literal]:
    """All single characters of a pattern, in the order in which they are written."""
    match node:
        case Literal():
            yield node
        case Sequence(items=parts) | Choice(options=parts):
            for part in parts:
                yield from literals(part)
        case Repeat(item=item):
            yield from literals(item)


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.flags: frozenset[str] = frozenset()

    def choice(self, flags: frozenset[str], depth: int) -> Node:
        """What stands up to a closing parenthesis, or to the end."""
        if depth > _DEEPEST:
            raise UnreadError(self.pattern)
        start = self.position
        self.flags = flags
        options = [self.sequence(depth)]
        while self._take("|"):
            options.append(self.sequence(depth))
        if len(options) == 1:
            return options[0]
        return Choice(start, self.position, tuple(options))

    def sequence(self, depth: int) -> Node:
        start = self.position
        items: list[Node] = []
        while self.position < len(self.pattern) and self.pattern[self.position] not in "|)":
            item = self.item(depth)
            if item is not None:
                items.append(self.repeated(item))
        if len(items) == 1:
            return items[0]
        return Sequence(start, self.position, tuple(items))

    def item(self, depth: int) -> Node | None:
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
            return OneOf(start, self.position, line, open=True)
        if character in "*+?":
            raise UnreadError(self.pattern)
        return Literal(start, self.position, character, "i" in self.flags)

    def group(self, depth: int) -> Node | None:
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
            raise UnreadError(self.pattern)
        found = self.choice(self.flags, depth + 1)
        if not self._take(")"):
            raise UnreadError(self.pattern)
        self.flags = outside
        return found

    def repeated(self, item: Node) -> Node:
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
            item = Repeat(item.start, self.position, item, least, most)
        return item

    def escape(self) -> Node:
        start = self.position
        if self.pattern.startswith(r"\Q", start):
            raise UnreadError(self.pattern)
        found = self._escaped()
        if isinstance(found, str):
            return Literal(start, self.position, found, "i" in self.flags)
        if found is None:
            return Assertion(start, self.position)
        return self.one_of(start, *found)

    def bracket(self) -> Node:
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
        found = self.one_of(start, inside, beyond)
        if negated:
            return OneOf(start, self.position, _ASCII - found.characters, open=True)
        return found

    def one_of(self, start: int, characters: frozenset[str], beyond: bool) -> OneOf:
        if "i" in self.flags:
            characters |= {case for one in characters for case in (one.lower(), one.upper())}
            beyond = beyond or bool(characters & {"k", "s"})  # K (Kelvin) and ſ fold to them
        return OneOf(start, self.position, characters, open=beyond)

    def _member(self) -> tuple[frozenset[str], bool]:
        """What one part of a bracket stands for: a class, a range or a character."""
        if posix := _POSIX.match(self.pattern, self.position):
            self.position = posix.end()
            characters = _NAMES.get(posix[2])
            if characters is None:
                raise UnreadError(self.pattern)
            return (_ASCII - characters, True) if posix[1] else (characters, False)
        low = self._one()
        if not isinstance(low, str):
            return low
        high: str | tuple[frozenset[str], bool] = low
        rest = self.pattern[self.position : self.position + 2]
        if rest[:1] == "-" and rest[1:] not in ("", "]"):
            self.position += 1
            high = self._one()
        if not isinstance(high, str):
            raise UnreadError(self.pattern)
        top = min(ord(high), 127)
        return frozenset(map(chr, range(ord(low), top + 1))), ord(high) > 127

    def _one(self) -> str | tuple[frozenset[str], bool]:
        if self.position >= len(self.pattern):
            raise UnreadError(self.pattern)
        if self.pattern[self.position] != "\\":
            self.position += 1
            return self.pattern[self.position - 1]
        found = self._escaped()
        if found is None:
            raise UnreadError(self.pattern)
        return found

    def _escaped(self) -> str | tuple[frozenset[str], bool] | None:
        r"""A character, or a class, or None for an assertion; the position goes behind it."""
        escape = _ESCAPED.match(self.pattern, self.position)
        if escape is None:
            raise UnreadError(self.pattern)
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
            raise UnreadError(self.pattern)
        return letter

    def _take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.position):
            self.position += len(text)
            return True
        return False
