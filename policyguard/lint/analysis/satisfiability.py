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

from policyguard.cel.syntax.tree import (
    Binary,
    Call,
    Comprehension,
    Conditional,
    Constant,
    Expr,
    Identifier,
    Index,
    ListLiteral,
    Logic,
    Operator,
    Select,
    Unary,
    iter_children,
)
from policyguard.lint.analysis.patterns import compile_regex

_MAX_CONJUNCTIONS = 256
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
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXT_FUNCTIONS: dict[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
    "matches": lambda text, pattern: compile_regex(pattern).search(text),
}


class Predicate(NamedTuple):
    """One demand on a value: that it holds, or with `holds` false that it does not.

    `kind` is `among` (of a tuple), a comparison, a function on texts, or `where` (any predicate on
    texts).
    """

    kind: str
    operand: object
    holds: bool = True


Conjunction = dict[str, tuple[Predicate, ...]]
"""What must hold of each value for a condition to be true; values by their `name`."""


class _TooManyError(Exception):
    pass


def is_unsatisfiable(
    *conditions: tuple[Expr, bool], assumptions: Conjunction | None = None
) -> bool:
    """Whether conditions exclude each other: each with whether it is to be true or false.

    `given` is what is known of values besides, such as `{"call.tool": …}`.
    """
    try:
        ways = [_to_dnf(node, holds) for node, holds in conditions]
        together = _conjoin([[assumptions or {}], *ways])
    except _TooManyError:
        return False
    return not any(_is_satisfiable(way) for way in together)


def value_name(node: Expr) -> str:
    """A name for a value: two parts of conditions that have the same one are the same value."""
    match node:
        case Identifier(name=text):
            return text
        case Select(operand=operand, field=field):
            return f"{value_name(operand)}.{field}"
        case Index(operand=operand, key=Constant(value=str(key))) if key.isidentifier():
            return f"{value_name(operand)}.{key}"
        case Constant(value=value):
            return f"{type(value).__name__}:{value!r}"
    kind = [type(node).__name__]
    kind += [str(getattr(node, part, "")) for part in ("operator", "name", "macro")]
    if isinstance(node, Call):
        kind.append("method" if node.receiver is not None else "function")
    if isinstance(node, Comprehension):
        kind += [variable.name for variable in node.variables]
        kind += [str(part is None) for part in (node.condition, node.result)]
    return f"{'/'.join(kind)}({', '.join(map(value_name, iter_children(node)))})"


def _to_dnf(node: Expr, holds: bool) -> list[Conjunction]:
    """The ways in which a condition is true (or false, unless `holds`)."""
    match node:
        case Constant(value=bool(value)):
            return [{}] if value is holds else []
        case Unary(operator="!", operand=operand):
            return _to_dnf(operand, not holds)
        case Logic(operator=sign, operands=operands):
            parts = [_to_dnf(operand, holds) for operand in operands]
            return _conjoin(parts) if (sign == "&&") is holds else _disjoin(parts)
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            return _disjoin(
                [
                    _conjoin([_to_dnf(condition, True), _to_dnf(then, holds)]),
                    _conjoin([_to_dnf(condition, False), _to_dnf(otherwise, holds)]),
                ]
            )
    return [_atom(node, holds)]


def _atom(node: Expr, holds: bool) -> Conjunction:
    """What a condition without parts demands."""
    if isinstance(node, Binary):
        left, right, sign = node.left, node.right, node.operator
        if isinstance(left, Constant) and sign in _FLIPPED:
            left, right, sign = right, left, _FLIPPED[sign]
        text = value_name(left)
        if sign == "in" and isinstance(right, ListLiteral):
            items = [item.value for item in right.items if isinstance(item, Constant)]
            if len(items) == len(right.items):
                return {text: (Predicate("among", tuple(items), holds),)}
        elif sign in ("==", "!="):
            if isinstance(right, Constant):
                return {text: (Predicate("among", (right.value,), (sign == "==") is holds),)}
            if text == value_name(right):
                return {text: (Predicate("among", (), (sign == "==") is not holds),)}
        elif isinstance(right, Constant) and sign in _OPPOSITE and _is_number(right.value):
            kind = sign if holds else _OPPOSITE[sign]
            return {text: (Predicate(kind, right.value), *_implied(left))}
    elif isinstance(node, Call) and node.receiver is not None and len(node.arguments) == 1:
        argument = node.arguments[0]
        if node.name in _TEXT_FUNCTIONS and isinstance(argument, Constant):
            text = value_name(node.receiver)
            return {text: (Predicate(node.name, argument.value, holds),)}
    return {value_name(node): (Predicate("among", (True,), holds),)}


def _implied(node: Expr) -> tuple[Predicate, ...]:
    """What holds of a value anyhow: a size is never negative."""
    return (Predicate(">=", 0),) if isinstance(node, Call) and node.name == "size" else ()


def _conjoin(parts: Iterable[list[Conjunction]]) -> list[Conjunction]:
    found: list[Conjunction] = [{}]
    for part in parts:
        if len(found) * len(part) > _MAX_CONJUNCTIONS:
            raise _TooManyError
        found = [_merge(one, other) for one, other in product(found, part)]
    return found


def _disjoin(parts: Iterable[list[Conjunction]]) -> list[Conjunction]:
    found = [way for part in parts for way in part]
    if len(found) > _MAX_CONJUNCTIONS:
        raise _TooManyError
    return found


def _merge(one: Conjunction, other: Conjunction) -> Conjunction:
    return {text: one.get(text, ()) + other.get(text, ()) for text in one.keys() | other.keys()}


def _is_satisfiable(way: Conjunction) -> bool:
    return all(_has_solution(tests) for tests in way.values())


def _has_solution(tests: tuple[Predicate, ...]) -> bool:
    """Whether there may be a value that passes all tests."""
    lists = [test.operand for test in tests if test.kind == "among" and test.holds]
    if lists and isinstance(lists[0], tuple):
        return any(all(_satisfies(value, test) for test in tests) for value in lists[0])
    if any(test._replace(holds=not test.holds) in tests for test in tests):
        return False
    starts = [str(test.operand) for test in tests if test.kind == "startsWith" and test.holds]
    ends = [str(test.operand)[::-1] for test in tests if test.kind == "endsWith" and test.holds]
    return _share_prefix(starts) and _share_prefix(ends) and _has_number(tests)


def _share_prefix(texts: list[str]) -> bool:
    """Whether one text can begin with all of these."""
    longest = max(texts, key=len, default="")
    return all(longest.startswith(text) for text in texts)


def _has_number(tests: tuple[Predicate, ...]) -> bool:
    """Whether there is room for a number between all bounds."""
    low, high = float("-inf"), float("inf")
    for test in tests:
        if isinstance(test.operand, int | float):
            low = max(low, test.operand) if test.kind in (">", ">=") else low
            high = min(high, test.operand) if test.kind in ("<", "<=") else high
    if low == high:
        return all(_satisfies(low, test) for test in tests)
    return low < high


def _satisfies(value: object, test: Predicate) -> bool:
    """Whether a value passes a test; one that a test is not made for, does not."""
    if test.kind == "among":
        wanted = test.operand if isinstance(test.operand, tuple) else ()
        return any(_equal(value, other) for other in wanted) is test.holds
    if test.kind in _COMPARISONS:
        return _is_number(value) and _COMPARISONS[test.kind](value, test.operand)
    if not isinstance(value, str):
        return False
    if callable(test.operand):
        return bool(test.operand(value)) is test.holds
    return _TEXT_FUNCTIONS[test.kind](value, str(test.operand)) is test.holds


def _equal(one: object, other: object) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
