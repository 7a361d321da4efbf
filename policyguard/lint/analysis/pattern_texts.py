"""Texts that a pattern needs: whatever it finds something in has one of these in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from policyguard.lint.analysis.pattern_tree import (
    Assertion,
    Choice,
    Literal,
    Node,
    OneOf,
    Repeat,
    Sequence,
    UnreadError,
    read,
)

_MOST = 64
"""Texts that are told apart; a part of a pattern with more of them is none that is known."""
_LONGEST = 200
"""Characters that a text may have."""


class Needed(NamedTuple):
    """A text that a pattern needs; with `fold`, in any case."""

    text: str
    fold: bool


Texts = frozenset[Needed]


def needed(pattern: str) -> Texts:
    """Texts of which each match of the pattern has at least one; empty where none are known."""
    try:
        return _needed(read(pattern)) or frozenset()
    except UnreadError:
        return frozenset()


def alternatives(pattern: str) -> Iterator[tuple[Node, Texts]]:
    """The alternatives of a pattern of which all texts are known, with them; assertions aside."""
    try:
        tree = read(pattern)
    except UnreadError:
        return
    for option in tree.options if isinstance(tree, Choice) else (tree,):
        texts = _exact(option)
        if texts is not None:
            yield option, texts


def _exact(node: Node) -> Texts | None:
    """All texts that a part of a pattern stands for, if they are few; its assertions aside."""
    match node:
        case Assertion():
            return frozenset({Needed("", False)})
        case Literal(character=character, fold=fold):
            cased = character.lower() != character.upper()
            return frozenset({Needed(character, fold and cased)})
        case OneOf(characters=characters, open=beyond):
            if beyond or len(characters) > _MOST:
                return None
            return frozenset(Needed(character, False) for character in characters)
        case Sequence(items=items):
            return _joined([_exact(item) for item in items])
        case Choice(options=options):
            return _united([_exact(option) for option in options])
        case Repeat(item=item, least=least, most=most):
            if most is None or most > _LONGEST:
                return None
            once = _exact(item)
            return _united([_joined([once] * count) for count in range(least, most + 1)])
    return None


def _needed(node: Node) -> Texts | None:
    """The best texts of which each match of a part of a pattern has one; None for none."""
    exact = _exact(node)
    if exact is not None:
        return None if Needed("", False) in exact or not exact else exact
    match node:
        case Sequence(items=items):
            return _best(items)
        case Choice(options=options):
            return _united([_needed(option) for option in options])
        case Repeat(item=item, least=least) if least:
            return _needed(item)
    return None


def _best(items: tuple[Node, ...]) -> Texts | None:
    """Of a sequence: the run of known texts, or the part, whose shortest text is longest."""
    candidates: list[Texts | None] = []
    run: Texts | None = frozenset({Needed("", False)})
    for item in items:
        exact = _exact(item)
        longer = _joined([run, exact])
        if longer is None:
            candidates += [run, _needed(item)]
            longer = exact or frozenset({Needed("", False)})
        run = longer
    candidates.append(run)
    known = [texts for texts in candidates if texts and all(one.text for one in texts)]
    return max(known, key=lambda texts: min(len(one.text) for one in texts), default=None)


def _joined(parts: list[Texts | None]) -> Texts | None:
    found: Texts = frozenset({Needed("", False)})
    for part in parts:
        if part is None or len(found) * len(part) > _MOST:
            return None
        found = frozenset(
            Needed(one.text + other.text, one.fold or other.fold)
            for one, other in product(found, part)
        )
        if any(len(one.text) > _LONGEST for one in found):
            return None
    return found


def _united(parts: list[Texts | None]) -> Texts | None:
    found: Texts = frozenset()
    for part in parts:
        if part is None:
            return None
        found |= part
    return found if len(found) <= _MOST else None
