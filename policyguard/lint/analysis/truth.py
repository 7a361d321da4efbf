"""Whether a condition can be true, and whether it can be false.

A condition is spread out into the ways in which it can be true: each a set of tests, of values that
are read. A way is impossible where no value passes all tests on it. Whatever is not understood is
a value of its own that may be anything, so that nothing is claimed that does not hold.

Errors are left out: where a value is absent, a condition is neither true nor false.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, NamedTuple

from policyguard.cel.tree import (
    Binary,
    Call,
    Comprehension,
    Conditional,
    Constant,
    Identifier,
    Index,
    ListLiteral,
    Logic,
    Node,
    Operator,
    Select,
    Unary,
    children,
)
from policyguard.lint.analysis.patterns import regex

_MOST = 256
"""Ways that are told apart; a condition with more is one that can be anything."""
_FLIPPED: dict[Operator, Operator] = {
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "==": "==",
    "!=": "!=",
}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXT: dict[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
    "matches": lambda text, pattern: regex(pattern).search(text),
}


class Test(NamedTuple):
    """One demand on a value: that it holds, or with `holds` false that it does not.

    `kind` is `among` (of a tuple), a comparison, a function on texts, or `where` (any predicate on
    texts).
    """

    kind: str
    operand: object
    holds: bool = True


Way = dict[str, tuple[Test, ...]]
"""What must hold of each value for a condition to be true; values by their `name`."""


class _TooManyError(Exception):
    pass


def never(*conditions: tuple[Node, bool], given: Way | None = None) -> bool:
    """Whether conditions exclude each other: each with whether it is to be true or false.

    `given` is what is known of values besides, such as `{"call.tool": …}`.
    """
    try:
        ways = [_ways(node, holds) for node, holds in conditions]
        together = _product([[given or {}], *ways])
    except _TooManyError:
        return False
    return not any(_possible(way) for way in together)


def name(node: Node) -> str:
    """A name for a value: two parts of conditions that have the same one are the same value."""
    match node:
        case Identifier(name=text):
            return text
        case Select(operand=operand, field=field):
            return f"{name(operand)}.{field}"
        case Index(operand=operand, key=Constant(value=str(key))) if key.isidentifier():
            return f"{name(operand)}.{key}"
        case Constant(value=value):
            return f"{type(value).__name__}:{value!r}"
    kind = [type(node).__name__]
    kind += [str(getattr(node, part, "")) for part in ("operator", "name", "macro")]
    if isinstance(node, Call):
        kind.append("method" if node.receiver is not None else "function")
    if isinstance(node, Comprehension):
        kind += [variable.name for variable in node.variables]
        kind += [str(part is None) for part in (node.condition, node.result)]
    return f"{'/'.join(kind)}({', '.join(map(name, children(node)))})"


def _ways(node: Node, holds: bool) -> list[Way]:
    """The ways in which a condition is true (or false, unless `holds`)."""
    match node:
        case Constant(value=bool(value)):
            return [{}] if value is holds else []
        case Unary(operator="!", operand=operand):
            return _ways(operand, not holds)
        case Logic(operator=sign, operands=operands):
            parts = [_ways(operand, holds) for operand in operands]
            return _product(parts) if (sign == "&&") is holds else _sum(parts)
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            return _sum(
                [
                    _product([_ways(condition, True), _ways(then, holds)]),
                    _product([_ways(condition, False), _ways(otherwise, holds)]),
                ]
            )
    return [_simple(node, holds)]


def _simple(node: Node, holds: bool) -> Way:
    """What a condition without parts demands."""
    if isinstance(node, Binary):
        left, right, sign = node.left, node.right, node.operator
        if isinstance(left, Constant) and sign in _FLIPPED:
            left, right, sign = right, left, _FLIPPED[sign]
        text = name(left)
        if sign == "in" and isinstance(right, ListLiteral):
            items = [item.value for item in right.items if isinstance(item, Constant)]
            if len(items) == len(right.items):
                return {text: (Test("among", tuple(items), holds),)}
        elif sign in ("==", "!="):
            if isinstance(right, Constant):
                return {text: (Test("among", (right.value,), (sign == "==") is holds),)}
            if text == name(right):
                return {text: (Test("among", (), (sign == "==") is not holds),)}
        elif isinstance(right, Constant) and sign in _OPPOSITE and _is_number(right.value):
            kind = sign if holds else _OPPOSITE[sign]
            return {text: (Test(kind, right.value), *_known(left))}
    elif isinstance(node, Call) and node.receiver is not None and len(node.arguments) == 1:
        argument = node.arguments[0]
        if node.name in _TEXT and isinstance(argument, Constant):
            text = name(node.receiver)
            return {text: (Test(node.name, argument.value, holds),)}
    return {name(node): (Test("among", (True,), holds),)}


def _known(node: Node) -> tuple[Test, ...]:
    """What holds of a value anyhow: a size is never negative."""
    return (Test(">=", 0),) if isinstance(node, Call) and node.name == "size" else ()


def _product(parts: Iterable[list[Way]]) -> list[Way]:
    found: list[Way] = [{}]
    for part in parts:
        if len(found) * len(part) > _MOST:
            raise _TooManyError
        found = [_both(one, other) for one, other in product(found, part)]
    return found


def _sum(parts: Iterable[list[Way]]) -> list[Way]:
    found = [way for part in parts for way in part]
    if len(found) > _MOST:
        raise _TooManyError
    return found


def _both(one: Way, other: Way) -> Way:
    return {text: one.get(text, ()) + other.get(text, ()) for text in one.keys() | other.keys()}


def _possible(way: Way) -> bool:
    return all(_can_pass(tests) for tests in way.values())


def _can_pass(tests: tuple[Test, ...]) -> bool:
    """Whether there may be a value that passes all tests."""
    lists = [test.operand for test in tests if test.kind == "among" and test.holds]
    if lists and isinstance(lists[0], tuple):
        return any(all(_passes(value, test) for test in tests) for value in lists[0])
    if any(test._replace(holds=not test.holds) in tests for test in tests):
        return False
    starts = [str(test.operand) for test in tests if test.kind == "startsWith" and test.holds]
    ends = [str(test.operand)[::-1] for test in tests if test.kind == "endsWith" and test.holds]
    return _prefixes(starts) and _prefixes(ends) and _between(tests)


def _prefixes(texts: list[str]) -> bool:
    """Whether one text can begin with all of these."""
    longest = max(texts, key=len, default="")
    return all(longest.startswith(text) for text in texts)


def _between(tests: tuple[Test, ...]) -> bool:
    """Whether there is room for a number between all bounds."""
    low, high = float("-inf"), float("inf")
    for test in tests:
        if isinstance(test.operand, int | float):
            low = max(low, test.operand) if test.kind in (">", ">=") else low
            high = min(high, test.operand) if test.kind in ("<", "<=") else high
    if low == high:
        return all(_passes(low, test) for test in tests)
    return low < high


def _passes(value: object, test: Test) -> bool:
    """Whether a value passes a test; one that a test is not made for, does not."""
    if test.kind == "among":
        wanted = test.operand if isinstance(test.operand, tuple) else ()
        return any(_equal(value, other) for other in wanted) is test.holds
    if test.kind in _COMPARED:
        return _is_number(value) and _COMPARED[test.kind](value, test.operand)
    if not isinstance(value, str):
        return False
    if callable(test.operand):
        return bool(test.operand(value)) is test.holds
    return _TEXT[test.kind](value, str(test.operand)) is test.holds


def _equal(one: object, other: object) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
