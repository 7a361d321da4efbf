"""Which tools, classes and agents an entry is about: globs and words, compiled to predicates."""

from __future__ import annotations

from collections.abc import Callable

from policyguard.engines.regex import Regex
from policyguard.model.entry import Selector
from policyguard.model.policy import ClassEntry

NameMatcher = Callable[[str], bool]


def compile_glob(pattern: str) -> NameMatcher:
    """A predicate for names: `*` is any text, `?` any one character, all else is itself."""
    if "*" not in pattern and "?" not in pattern:
        return pattern.__eq__
    parts = {"*": ".*", "?": "."}
    return Regex(r"(?s)\A" + "".join(parts.get(c, _escape(c)) for c in pattern) + r"\z").search


def _escape(character: str) -> str:
    return character if character.isalnum() or character == "_" else f"\\x{{{ord(character):x}}}"


def literal_prefix_length(pattern: str) -> int:
    """How many characters of a glob come before its first wildcard; one without any is longest."""
    places = [place for place in (pattern.find("*"), pattern.find("?")) if place >= 0]
    return min(places) if places else len(pattern) + 1


def compile_selector(selector: Selector | None) -> NameMatcher:
    """A predicate for a selector on names; where there is none, everything matches."""
    if selector is None:
        return _match_all
    globs = [compile_glob(item) for item in selector.items]
    outside = selector.outside
    return lambda name: any(matches(name) for matches in globs) is not outside


def _match_all(name: str) -> bool:
    return True


def split_words(name: str) -> frozenset[str]:
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


def compile_class_matcher(entry: ClassEntry) -> NameMatcher:
    """A predicate: a tool's name fits a class entry, its `when` aside."""
    words = None if entry.words is None else frozenset(word.casefold() for word in entry.words)
    globs = None if entry.tools is None else [compile_glob(item) for item in entry.tools]

    def fits(tool: str) -> bool:
        if words is not None and words.isdisjoint(split_words(tool)):
            return False
        return globs is None or any(matches(tool) for matches in globs)

    return fits


def globs_overlap(one: str, other: str) -> bool:
    """Whether there is a text that both globs match; `*` is any text, `?` one character.

    Takes time and space of the two lengths multiplied.
    """
    waiting = [(0, 0)]
    seen = set(waiting)
    while waiting:
        i, j = waiting.pop()
        left, right = one[i : i + 1], other[j : j + 1]
        if not left and not right:
            return True
        steps = []
        if left == "*":
            steps += [(i + 1, j), (i, j + 1)] if right else [(i + 1, j)]
        if right == "*":
            steps += [(i, j + 1), (i + 1, j)] if left else [(i, j + 1)]
        if left and right and (left == right or "?" in (left, right)):
            steps.append((i + 1, j + 1))
        fresh = [step for step in steps if step not in seen]
        seen.update(fresh)
        waiting += fresh
    return False
