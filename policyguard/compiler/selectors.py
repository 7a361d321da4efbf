"""Which tools, classes and agents an entry is about: globs and words, compiled to predicates."""

from __future__ import annotations

from collections.abc import Callable

from policyguard.engines.regex import Regex
from policyguard.model.entry import Selector
from policyguard.model.policy import ClassEntry

Matches = Callable[[str], bool]


def glob(pattern: str) -> Matches:
    """A predicate for names: `*` is any text, `?` any one character, all else is itself."""
    if "*" not in pattern and "?" not in pattern:
        return pattern.__eq__
    parts = {"*": ".*", "?": "."}
    return Regex(r"(?s)\A" + "".join(parts.get(c, _quoted(c)) for c in pattern) + r"\z").search


def _quoted(character: str) -> str:
    return character if character.isalnum() or character == "_" else f"\\x{{{ord(character):x}}}"


def literal_prefix(pattern: str) -> int:
    """How many characters of a glob come before its first wildcard; one without any is longest."""
    places = [place for place in (pattern.find("*"), pattern.find("?")) if place >= 0]
    return min(places) if places else len(pattern) + 1


def selects(selector: Selector | None) -> Matches:
    """A predicate for a selector on names; where there is none, everything matches."""
    if selector is None:
        return _always
    globs = [glob(item) for item in selector.items]
    outside = selector.outside
    return lambda name: any(matches(name) for matches in globs) is not outside


def _always(name: str) -> bool:
    return True


def words_of(name: str) -> frozenset[str]:
    """The words of a tool's name: split at `_ - . / :`, white space and camelCase, lower case.

    `getHTTPResponse2` has the words get, http, response2.
    """
    words: list[str] = []
    word = ""
    for place, character in enumerate(name):
        if not character.isalnum():
            words.append(word)
            word = ""
            continue
        before = name[place - 1] if place else ""
        after = name[place + 1] if place + 1 < len(name) else ""
        if character.isupper() and (
            before.islower() or before.isdigit() or (before.isupper() and after.islower())
        ):
            words.append(word)
            word = ""
        word += character
    words.append(word)
    return frozenset(word.casefold() for word in words if word)


def names(entry: ClassEntry) -> Matches:
    """A predicate: a tool's name fits a class entry, its `when` aside."""
    words = None if entry.words is None else frozenset(word.casefold() for word in entry.words)
    globs = None if entry.tools is None else [glob(item) for item in entry.tools]

    def fits(tool: str) -> bool:
        if words is not None and words.isdisjoint(words_of(tool)):
            return False
        return globs is None or any(matches(tool) for matches in globs)

    return fits
