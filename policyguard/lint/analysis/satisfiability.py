"""Decide whether a condition can be true or false.

A condition is converted to disjunctive normal form: a list of conjunctions of predicates on values.
A conjunction is unsatisfiable if no value satisfies all its predicates. An expression that is not
understood counts as an unknown value, so that no wrong claims are made.

Errors are not modelled: if a value is absent, a condition is neither true nor false.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, NamedTuple

from policyguard.cel.syntax.ast import (
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
"""Conjunctions to analyse; nothing is claimed about a condition with more."""
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
TEXT_FUNCTIONS: dict[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
    "matches": lambda text, pattern: compile_regex(pattern).search(text),
}
DATE_PARTS = {
    "getMonth": (0, 11),
    "getDate": (1, 31),
    "getDayOfMonth": (0, 30),
    "getDayOfWeek": (0, 6),
    "getDayOfYear": (0, 365),
    "getHours": (0, 23),
    "getMinutes": (0, 59),
    "getSeconds": (0, 59),
    "getMilliseconds": (0, 999),
}
"""The lowest and highest value of each part of a timestamp (CEL specification, "Timestamp")."""
_TIMES = ("now", "tags.", "call.tags.", "session.tags.")
"""Beginnings of the names of timestamps: a tag with such a part is one."""


class Predicate(NamedTuple):
    """A predicate on a value, or its negation unless `holds`.

    `kind` is `among` (a tuple), a comparison, a text function, or `where` (a Python function).
    """

    kind: str
    operand: object
    holds: bool = True


_COUNTS = frozenset(
    {"outcome.chars", "session.calls", "session.children", "session.cost", "session.depth"}
    | {"session.failures", "session.running", "session.tokens", "session.turn"}
)
"""Fields that are never negative."""
_NEVER_IN_HOSTS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ/*@ ")
_CASES: dict[str, Callable[[str], bool]] = {
    "lowerAscii": lambda text: not any("A" <= letter <= "Z" for letter in text),
    "upperAscii": lambda text: not any("a" <= letter <= "z" for letter in text),
    **dict.fromkeys(("email_domain", "host", "scheme"), lambda text: not _NEVER_IN_HOSTS & {*text}),
}
"""What all texts that a function without arguments returns, and parts of them, have in common."""

Conjunction = dict[str, tuple[Predicate, ...]]
"""The predicates on each value, by its `value_name`."""


HAS_TOOL: Conjunction = {"call.tool": (Predicate("among", ("",), holds=False),)}
"""What holds for every call that names its tool."""


class _TooManyError(Exception):
    pass


def is_unsatisfiable(
    *conditions: tuple[Expr, bool], assumptions: Conjunction | None = None
) -> bool:
    """Return whether conditions, each wanted true or false, exclude each other.

    `assumptions` hold further predicates, such as `{"call.tool": …}`.
    """
    try:
        parts = [_to_dnf(node, holds) for node, holds in conditions]
        conjunctions = _conjoin([[assumptions or {}], *parts])
    except _TooManyError:
        return False
    return not any(map(_is_satisfiable, conjunctions))


def value_name(node: Expr) -> str:
    """Return a name for a value; equal names mean equal values."""
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
    """Return the conjunctions under which a condition is true, or false unless `holds`."""
    match node:
        case Constant(value=bool(value)):
            return [{}] if value is holds else []
        case Unary(operator="!", operand=operand):
            return _to_dnf(operand, not holds)
        case Logic(operator=operator_, operands=operands):
            parts = [_to_dnf(operand, holds) for operand in operands]
            return _conjoin(parts) if (operator_ == "&&") is holds else _disjoin(parts)
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            return _disjoin(
                [
                    _conjoin([_to_dnf(condition, True), _to_dnf(then, holds)]),
                    _conjoin([_to_dnf(condition, False), _to_dnf(otherwise, holds)]),
                ]
            )
    return [_atom(node, holds)]


def _atom(node: Expr, holds: bool) -> Conjunction:
    """Return the conjunction for a condition without logical operators."""
    if isinstance(node, Binary):
        left, right, operator_ = node.left, node.right, node.operator
        if isinstance(left, Constant) and operator_ in _FLIPPED:
            left, right, operator_ = right, left, _FLIPPED[operator_]
        name, implied = value_name(left), _implied(left)
        if isinstance(left, Constant) and isinstance(right, Constant) and operator_ in _CONSTANTS:
            is_true = _CONSTANTS[operator_](left.value, right.value)
            return {name: (Predicate("among", (), is_true is not holds),)}
        if operator_ == "in" and isinstance(right, ListLiteral):
            items = [item.value for item in right.items if isinstance(item, Constant)]
            if len(items) == len(right.items):
                return {name: (Predicate("among", tuple(items), holds), *implied)}
        elif operator_ in ("==", "!="):
            if isinstance(right, Constant):
                is_equal = (operator_ == "==") is holds
                return {name: (Predicate("among", (right.value,), is_equal), *implied)}
            if name == value_name(right):
                return {name: (Predicate("among", (), (operator_ == "==") is not holds),)}
        elif isinstance(right, Constant) and operator_ in _OPPOSITE and _is_number(right.value):
            kind = operator_ if holds else _OPPOSITE[operator_]
            return {name: (Predicate(kind, right.value), *implied)}
    elif isinstance(node, Call) and node.receiver is not None and len(node.arguments) == 1:
        argument = node.arguments[0]
        if node.name in TEXT_FUNCTIONS and isinstance(argument, Constant):
            name, implied = value_name(node.receiver), _implied(node.receiver)
            cases = [one for one in implied if one.kind == "where"]
            if node.name != "matches" and not all(_satisfies(argument.value, one) for one in cases):
                return {name: (Predicate("among", (), holds),)}  # no lower-case text has an `A`
            return {name: (Predicate(node.name, argument.value, holds),)}
    return {value_name(node): (Predicate("among", (True,), holds),)}


def _implied(node: Expr) -> tuple[Predicate, ...]:
    """Return predicates that always hold: a size or count is never negative, an hour at most 23."""
    if not isinstance(node, Call):
        is_count = isinstance(node, Select) and value_name(node) in _COUNTS
        return (Predicate(">=", 0),) if is_count else ()
    if node.name in _CASES and not node.arguments:
        return (Predicate("where", _CASES[node.name]),)
    if node.name in ("size", "count", "count_class"):
        return (Predicate(">=", 0),)
    bounds = DATE_PARTS.get(node.name)
    if bounds is None or node.receiver is None:
        return ()
    if not value_name(node.receiver).startswith(_TIMES):
        return ()
    return Predicate(">=", bounds[0]), Predicate("<=", bounds[1])


def _conjoin(parts: Iterable[list[Conjunction]]) -> list[Conjunction]:
    found: list[Conjunction] = [{}]
    for part in parts:
        if len(found) * len(part) > _MAX_CONJUNCTIONS:
            raise _TooManyError
        found = [_merge(one, other) for one, other in product(found, part)]
    return found


def _disjoin(parts: Iterable[list[Conjunction]]) -> list[Conjunction]:
    found = [conjunction for part in parts for conjunction in part]
    if len(found) > _MAX_CONJUNCTIONS:
        raise _TooManyError
    return found


def _merge(one: Conjunction, other: Conjunction) -> Conjunction:
    return {name: one.get(name, ()) + other.get(name, ()) for name in one.keys() | other.keys()}


def _is_satisfiable(conjunction: Conjunction) -> bool:
    return all(map(_has_solution, conjunction.values()))


def _has_solution(predicates: tuple[Predicate, ...]) -> bool:
    """Return whether a value may satisfy all predicates."""
    lists = [one.operand for one in predicates if one.kind == "among" and one.holds]
    if lists and isinstance(lists[0], tuple):
        return any(all(_satisfies(value, one) for one in predicates) for value in lists[0])
    if any(one._replace(holds=not one.holds) in predicates for one in predicates):
        return False
    prefixes = [str(one.operand) for one in predicates if one[::2] == ("startsWith", True)]
    suffixes = [str(one.operand)[::-1] for one in predicates if one[::2] == ("endsWith", True)]
    return _share_prefix(prefixes) and _share_prefix(suffixes) and _has_number(predicates)


def _share_prefix(texts: list[str]) -> bool:
    """Return whether one text can start with all of these."""
    longest = max(texts, key=len, default="")
    return all(longest.startswith(text) for text in texts)


def _has_number(predicates: tuple[Predicate, ...]) -> bool:
    """Return whether a number lies within all bounds."""
    low, high = float("-inf"), float("inf")
    for predicate in predicates:
        if isinstance(predicate.operand, int | float):
            low = max(low, predicate.operand) if predicate.kind in (">", ">=") else low
            high = min(high, predicate.operand) if predicate.kind in ("<", "<=") else high
    if low == high:
        return all(_satisfies(low, predicate) for predicate in predicates)
    return low < high


def _satisfies(value: object, predicate: Predicate) -> bool:
    """Return whether a value satisfies a predicate; a value of the wrong type does not."""
    if predicate.kind == "among":
        options = predicate.operand if isinstance(predicate.operand, tuple) else ()
        return any(_is_equal(value, other) for other in options) is predicate.holds
    if predicate.kind in _COMPARISONS:
        return _is_number(value) and _COMPARISONS[predicate.kind](value, predicate.operand)
    if not isinstance(value, str):
        return False
    if callable(predicate.operand):
        return bool(predicate.operand(value)) is predicate.holds
    return TEXT_FUNCTIONS[predicate.kind](value, str(predicate.operand)) is predicate.holds


def _is_equal(one: object, other: object) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and one == other


_CONSTANTS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _is_equal,
    "!=": lambda one, other: not _is_equal(one, other),
    **_COMPARISONS,
}
"""Comparisons of two constants."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
