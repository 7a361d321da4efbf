"""Texts that a pattern needs: whatever it finds something in has one of these in it."""

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
"""Texts that are told apart; a part of a pattern with more of them is none that is known."""
_MAX_LENGTH = 200
"""Characters that a text may have."""


class RequiredLiteral(NamedTuple):
    """A text that a pattern needs; with `fold`, in any case."""

    text: str
    ignore_case: bool


LiteralSet = frozenset[RequiredLiteral]


def required_literals(pattern: str) -> LiteralSet:
    """Texts of which each match of the pattern has at least one; empty where none are known."""
    try:
        return _required(parse_regex(pattern)) or frozenset()
    except UnsupportedRegexError:
        return frozenset()


def literal_alternatives(pattern: str) -> Iterator[tuple[RegexNode, LiteralSet]]:
    """The alternatives of a pattern of which all texts are known, with them; assertions aside."""
    try:
        tree = parse_regex(pattern)
    except UnsupportedRegexError:
        return
    for option in tree.options if isinstance(tree, Alternation) else (tree,):
        texts = _exact(option)
        if texts is not None:
            yield option, texts


def _exact(node: RegexNode) -> LiteralSet | None:
    """All texts that a part of a pattern stands for, if they are few; its assertions aside."""
    match node:
        case Assertion():
            return frozenset({RequiredLiteral("", False)})
        case Literal(character=character, ignore_case=fold):
            cased = character.lower() != character.upper()
            return frozenset({RequiredLiteral(character, fold and cased)})
        case CharacterSet(characters=characters, has_non_ascii=beyond):
            if beyond or len(characters) > _MAX_LITERALS:
                return None
            return frozenset(RequiredLiteral(character, False) for character in characters)
        case Concatenation(items=items):
            return _concatenate([_exact(item) for item in items])
        case Alternation(options=options):
            return _unite([_exact(option) for option in options])
        case Repetition(item=item, min_count=least, max_count=most):
            if most is None or most > _MAX_LENGTH:
                return None
            once = _exact(item)
            return _unite([_concatenate([once] * count) for count in range(least, most + 1)])
    return None


def _required(node: RegexNode) -> LiteralSet | None:
    """The best texts of which each match of a part of a pattern has one; None for none."""
    exact = _exact(node)
    if exact is not None:
        return None if RequiredLiteral("", False) in exact or not exact else exact
    match node:
        case Concatenation(items=items):
            return _best_of_sequence(items)
        case Alternation(options=options):
            return _unite([_required(option) for option in options])
        case Repetition(item=item, min_count=least) if least:
            return _required(item)
    return None


def _best_of_sequence(items: tuple[RegexNode, ...]) -> LiteralSet | None:
    """Of a sequence: the run of known texts, or the part, whose shortest text is longest."""
    candidates: list[LiteralSet | None] = []
    run: LiteralSet | None = frozenset({RequiredLiteral("", False)})
    for item in items:
        exact = _exact(item)
        longer = _concatenate([run, exact])
        if longer is None:
            candidates += [run, _required(item)]
            longer = exact or frozenset({RequiredLiteral("", False)})
        run = longer
    candidates.append(run)
    known = [texts for texts in candidates if texts and all(one.text for one in texts)]
    return max(known, key=lambda texts: min(len(one.text) for one in texts), default=None)


def _concatenate(parts: list[LiteralSet | None]) -> LiteralSet | None:
    found: LiteralSet = frozenset({RequiredLiteral("", False)})
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
