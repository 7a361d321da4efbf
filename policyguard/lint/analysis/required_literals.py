"""Literals of which every match of a pattern contains one, or with one of which it begins."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from policyguard.lint.analysis.regex_ast import (
    Alternation,
    Assertion,
    CharacterSet,
    Concatenation,
    Literal,
    RegexNode,
    Repetition,
    UnsupportedRegexError,
    parse_regex,
)

_MAX_LITERALS = 64
"""Literals to enumerate per part of a pattern; with more, nothing is known about the part."""
_MAX_LENGTH = 200
"""Characters of a literal."""


class RequiredLiteral(NamedTuple):
    """A literal that matches of a pattern contain, in any case if `ignore_case`."""

    text: str
    ignore_case: bool


LiteralSet = frozenset[RequiredLiteral]
_EMPTY: LiteralSet = frozenset({RequiredLiteral("", False)})


def required_literals(pattern: str) -> LiteralSet:
    """Return literals of which each match contains at least one; empty if none are known."""
    try:
        return _required(parse_regex(pattern)) or frozenset()
    except UnsupportedRegexError:
        return frozenset()


def leading_literals(pattern: str) -> LiteralSet:
    """Return literals with one of which each match begins; empty ones if none are known."""
    try:
        return _leading(parse_regex(pattern))
    except UnsupportedRegexError:
        return _EMPTY


def literal_alternatives(pattern: str) -> Iterator[tuple[RegexNode, LiteralSet]]:
    """Yield the alternatives that match a known set of literals, ignoring assertions."""
    try:
        tree = parse_regex(pattern)
    except UnsupportedRegexError:
        return
    for option in tree.options if isinstance(tree, Alternation) else (tree,):
        literals = _exact(option)
        if literals is not None:
            yield option, literals


def _exact(node: RegexNode) -> LiteralSet | None:
    """Return all literals that a node matches, ignoring assertions; None if too many."""
    match node:
        case Assertion():
            return _EMPTY
        case Literal(character=character, ignore_case=ignore_case):
            has_case = character.lower() != character.upper()
            return frozenset({RequiredLiteral(character, ignore_case and has_case)})
        case CharacterSet(characters=characters, has_non_ascii=has_non_ascii):
            if has_non_ascii or len(characters) > _MAX_LITERALS:
                return None
            return frozenset(RequiredLiteral(character, False) for character in characters)
        case Concatenation(items=items):
            return _concatenate([_exact(item) for item in items])
        case Alternation(options=options):
            return _unite([_exact(option) for option in options])
        case Repetition(item=item, min_count=low, max_count=high):
            if high is None or high > _MAX_LENGTH:
                return None
            once = _exact(item)
            return _unite([_concatenate([once] * count) for count in range(low, high + 1)])
    return None


def _required(node: RegexNode) -> LiteralSet | None:
    """Return the best literals of which each match of a node contains one, or None."""
    exact = _exact(node)
    if exact is not None:
        return None if exact >= _EMPTY or not exact else exact
    match node:
        case Concatenation(items=items):
            return _best_of_sequence(items)
        case Alternation(options=options):
            return _unite([_required(option) for option in options])
        case Repetition(item=item, min_count=low) if low:
            return _required(item)
    return None


def _leading(node: RegexNode) -> LiteralSet:
    """Return the literals with one of which each match of a node begins, ignoring assertions."""
    exact = _exact(node)
    if exact is not None:
        return exact
    match node:
        case Concatenation(items=items):
            run: LiteralSet = _EMPTY
            for item in items:
                longer = _concatenate([run, _leading(item)])
                if longer is None:
                    break
                run = longer
                if _exact(item) is None:
                    break
            return run
        case Alternation(options=options):
            return _unite([_leading(option) for option in options]) or _EMPTY
        case Repetition(item=item, min_count=low) if low:
            return _leading(item)
    return _EMPTY


def _best_of_sequence(items: tuple[RegexNode, ...]) -> LiteralSet | None:
    """Return the literals, of a run of items or of one, whose shortest is longest."""
    candidates: list[LiteralSet | None] = []
    run: LiteralSet | None = _EMPTY
    for item in items:
        exact = _exact(item)
        longer = _concatenate([run, exact])
        if longer is None:
            candidates += [run, _required(item)]
            longer = exact or _EMPTY
        run = longer
    candidates.append(run)
    known = [found for found in candidates if found and all(one.text for one in found)]
    return max(known, key=lambda found: min(len(one.text) for one in found), default=None)


def _concatenate(parts: list[LiteralSet | None]) -> LiteralSet | None:
    found = _EMPTY
    for part in parts:
        if part is None or len(found) * len(part) > _MAX_LITERALS:
            return None
        found = frozenset(
            RequiredLiteral(one.text + other.text, one.ignore_case or other.ignore_case)
            for one, other in product(found, part)
        )
        if any(len(one.text) > _MAX_LENGTH for one in found):
            return None
    return found


def _unite(parts: list[LiteralSet | None]) -> LiteralSet | None:
    found: LiteralSet = frozenset()
    for part in parts:
        if part is None:
            return None
        found |= part
    return found if len(found) <= _MAX_LITERALS else None
