"""Compile selectors on names (globs, words) to predicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from policyguard.engines.regex import Regex
from policyguard.engines.star_glob import StarGlob
from policyguard.model.entry import SelectiveEntry, Selector
from policyguard.model.policy import ClassEntry
from policyguard.model.tool_name import (
    MCP_PREFIX,
    host_tool_names,
    join_tool_name,
    own_name_globs,
    short_tool_glob,
)

NameMatcher = Callable[[str], bool]


class ToolMatcher(Protocol):
    """A predicate on a tool, its server, and a full name of it with another server."""

    def __call__(self, tool: str, server: str, alias: str = "", /) -> bool:
        """Return whether one of the tool's names matches."""


def compile_glob(pattern: str) -> NameMatcher:
    """Return a predicate for names: `*` matches any text, `?` one character."""
    if "*" not in pattern and "?" not in pattern:
        return pattern.__eq__
    if "?" not in pattern and pattern.isascii():
        return _compile_star_glob(pattern)
    parts = {"*": ".*", "?": "."}
    return Regex(r"(?s)\A" + "".join(parts.get(c, _escape(c)) for c in pattern) + r"\z").search


def _compile_star_glob(pattern: str) -> NameMatcher:
    """Return a predicate for a glob with stars only, which takes no regex."""
    first, *middle, last = pattern.split("*")
    if not middle:
        length = len(first) + len(last)
        return lambda name: len(name) >= length and name.startswith(first) and name.endswith(last)
    if len(middle) == 1 and not first and not last:
        inside = middle[0]
        return lambda name: inside in name
    return StarGlob(pattern).matches


def _escape(character: str) -> str:
    return character if character.isalnum() or character == "_" else f"\\x{{{ord(character):x}}}"


def literal_prefix_length(pattern: str) -> int:
    """Return the number of characters before a glob's first wildcard; more if it has none."""
    positions = [index for index in (pattern.find("*"), pattern.find("?")) if index >= 0]
    return min(positions) if positions else len(pattern) + 1


def tool_glob_specificity(pattern: str) -> tuple[int, int]:
    """Return the literal prefix length of a tool's own name, then that of its full name.

    Of `mcp__fs__del*` the own name begins with `del`. Of `mcp*`, which matches full names, none is
    known.
    """
    length = literal_prefix_length(pattern)
    if length < len(MCP_PREFIX) and MCP_PREFIX.startswith(pattern[:length]):
        return 0, length
    return literal_prefix_length(short_tool_glob(pattern)), length


def compile_selector(selector: Selector | None) -> NameMatcher:
    """Return a predicate for a selector on names; None matches everything."""
    if selector is None:
        return lambda name: True
    globs = [compile_glob(item) for item in selector.items]
    outside = selector.outside
    return lambda name: any(matches(name) for matches in globs) is not outside


def compile_tool_glob(pattern: str) -> ToolMatcher:
    """Return a predicate on a tool and its server: the glob matches the own or a full name."""
    matches = compile_glob(pattern)
    return lambda tool, server, alias="": (
        matches(tool)
        or (server != "" and matches(join_tool_name(tool, server)))
        or (alias != "" and matches(alias))
    )


def _compile_any_name_glob(pattern: str) -> ToolMatcher:
    """Return a predicate like `compile_tool_glob`, also for the names that other hosts use.

    Only for what an entry covers: a server's name must not exempt its tools by accident, nor give
    them another limit.
    """
    matches = compile_glob(pattern)
    return lambda tool, server, alias="": (
        matches(tool)
        or (server != "" and any(map(matches, host_tool_names(tool, server))))
        or (alias != "" and matches(alias))
    )


def compile_tool_selector(selector: Selector | None) -> ToolMatcher:
    """Return a predicate on a tool and its server; None matches everything."""
    if selector is None:
        return lambda tool, server, alias="": True
    outside = selector.outside
    compile_item = compile_tool_glob if outside else _compile_any_name_glob
    globs = [compile_item(item) for item in selector.items]
    return lambda tool, server, alias="": (
        any(matches(tool, server, alias) for matches in globs) is not outside
    )


def compile_own_name_selector(selector: Selector | None) -> NameMatcher:
    """Return a predicate on a tool's own name: the selector may match it on some server."""
    if selector is None:
        return lambda name: True
    items = selector.items
    if selector.outside:
        items = tuple(item for item in items if short_tool_glob(item) == item)
    else:
        items = tuple(own for item in items for own in own_name_globs(item))
    return compile_selector(Selector(items=items, outside=selector.outside))


def compile_class_selector(selector: Selector | None) -> Callable[[tuple[str, ...]], bool]:
    """Return a predicate on a call's classes: one that the selector matches is enough.

    So `outside` matches unless all are inside. A call without a class counts as outside.
    """
    matches = compile_selector(selector)
    return lambda classes: any(map(matches, classes or ("",)))


def compile_selectors(
    entry: SelectiveEntry,
) -> Callable[[str, str, str, tuple[str, ...]], bool]:
    """Return a predicate on tool, server, alias (see `ToolMatcher`) and classes."""
    tools, servers = compile_tool_selector(entry.tools), compile_selector(entry.servers)
    has_class = compile_class_selector(entry.classes)
    return lambda tool, server, alias, classes: (
        tools(tool, server, alias) and servers(server) and has_class(classes)
    )


def complement(selector: Selector) -> Selector:
    """Return the selector of what one does not certainly match."""
    return Selector(items=selector.items, outside=not selector.outside)


def compile_covering_selectors(
    entry: SelectiveEntry,
) -> Callable[[str, str, str, tuple[str, ...]], bool]:
    """Return a predicate like `compile_selectors`, true only of calls that certainly match.

    A call of two classes is not certainly of the one that is listed.
    """
    tools = compile_tool_selector(complement(entry.tools)) if entry.tools else None
    classes = compile_class_selector(complement(entry.classes)) if entry.classes else None

    def covers(tool: str, server: str, alias: str, names: tuple[str, ...]) -> bool:
        if tools is not None and tools(tool, server, alias):
            return False
        return classes is None or not classes(names)

    return covers


def split_words(name: str) -> frozenset[str]:
    """Return the words of a tool's name (see `list_words`)."""
    return frozenset(list_words(name))


def list_words(name: str) -> list[str]:
    """Split a tool's name at `_ - . / :`, white space and camelCase, in lower case.

    `getHTTPResponse2` has the words get, http, response2.
    """
    words: list[str] = []
    word = ""
    for index, character in enumerate(name):
        if not character.isalnum():
            words.append(word)
            word = ""
            continue
        before = name[index - 1] if index else ""
        after = name[index + 1] if index + 1 < len(name) else ""
        if character.isupper() and (
            before.islower() or before.isdigit() or (before.isupper() and after.islower())
        ):
            words.append(word)
            word = ""
        word += character
    words.append(word)
    return [word.casefold() for word in words if word]


def compile_class_matcher(entry: ClassEntry) -> ToolMatcher:
    """Return a predicate for the `tools` and `words` of a class entry.

    Words are those of the tool's own name.
    """
    words = None if entry.words is None else frozenset(word.casefold() for word in entry.words)
    limit = 1 if entry.leading else None
    globs = None if entry.tools is None else [compile_tool_glob(item) for item in entry.tools]

    def matches_class(tool: str, server: str, alias: str = "", /) -> bool:
        if words is not None and words.isdisjoint(list_words(tool)[:limit]):
            return False
        return globs is None or any(matches(tool, server, alias) for matches in globs)

    return matches_class


def tool_globs_overlap(one: str, other: str) -> bool:
    """Return whether a tool of some server may match both globs, by its own or its full name."""
    if globs_overlap(one, other):
        return True
    short, other_short = short_tool_glob(one), short_tool_glob(other)
    return (short == one) is not (other_short == other) and globs_overlap(short, other_short)


def globs_overlap(one: str, other: str) -> bool:
    """Return whether a text matches both globs.

    Takes time and space proportional to the product of their lengths.
    """
    pending = [(0, 0)]
    seen = set(pending)
    while pending:
        i, j = pending.pop()
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
        pending += fresh
    return False
