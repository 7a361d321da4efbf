"""The Python text of single operators.

If the operands' kinds are certain, an operator is Python's own. Otherwise the likely case is tested
inline, and a function in `operators` handles the rest: a function call costs more than the rest of
a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from policyguard.cel.codegen.writer import CodeWriter, Precedence, PythonExpr

NUMERIC_KINDS: Final = frozenset({"int", "uint", "double"})
_TEXT_KINDS: Final = frozenset({"string", "bytes"})
_CLASS_NAMES: Final = {"int": "int", "double": "float", "string": "str", "bytes": "bytes"}
_ORDERINGS: Final = {"<": "less", "<=": "less_or_equal", ">": "greater", ">=": "greater_or_equal"}
_ARITHMETIC: Final = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "modulo"}


def condition(writer: CodeWriter, expr: PythonExpr) -> PythonExpr:
    """Return `expr` as a condition: anything but a bool raises."""
    if expr.kind == "bool":
        return expr
    if expr.kind:
        return PythonExpr(f"reject_non_bool({expr.code})", "bool")
    first, name = writer.bind_once(expr, "value")
    code = f"{first} is True or {name} is not False and reject_non_bool({name})"
    return PythonExpr(code, "bool", Precedence.OR)


def equality(
    writer: CodeWriter,
    operator: str,
    left: PythonExpr,
    right: PythonExpr,
    metered_call: Callable[..., str],
) -> PythonExpr:
    """Write `left == right` or `left != right`; `metered_call` writes calls of `equals`."""
    safe = left.is_safe and right.is_safe
    kinds = {left.kind, right.kind}
    plain = f"{left.wrap(Precedence.ARITHMETIC)} {operator} {right.wrap(Precedence.ARITHMETIC)}"
    if kinds & _TEXT_KINDS or (left.kind == right.kind and left.kind in NUMERIC_KINDS):
        return PythonExpr(plain, "bool", Precedence.COMPARISON, safe)
    if kinds & {"null", "bool"} and (len(kinds) == 1 or "" in kinds):
        # None, True and False are single objects, and nothing else equals them.
        same = "is" if operator == "==" else "is not"
        code = f"{left.wrap(Precedence.ARITHMETIC)} {same} {right.wrap(Precedence.ARITHMETIC)}"
        return PythonExpr(code, "bool", Precedence.COMPARISON, safe)
    for number, other in ((left, right), (right, left)):
        if number.is_literal and number.kind in NUMERIC_KINDS and not other.kind:
            # Python's True equals 1, CEL's does not.
            first, name = writer.bind_once(other, "value")
            number_code = number.wrap(Precedence.ARITHMETIC)
            if operator == "==":
                code = f"{first} == {number_code} and {name}.__class__ is not bool"
                return PythonExpr(code, "bool", Precedence.AND, safe)
            code = f"{first} != {number_code} or {name}.__class__ is bool"
            return PythonExpr(code, "bool", Precedence.OR, safe)
    call = metered_call("equals", left.code, right.code)
    if operator == "==":
        return PythonExpr(call, "bool", is_safe=safe)
    return PythonExpr(f"not {call}", "bool", Precedence.NOT, safe)


def ordering(
    writer: CodeWriter, operator: str, left: PythonExpr, right: PythonExpr, expected_kind: str
) -> PythonExpr:
    """Write `left < right` and the like; `expected_kind` is that of the uncertain side."""
    if left.kind == right.kind and left.kind in _CLASS_NAMES:
        code = f"{left.wrap(Precedence.ARITHMETIC)} {operator} {right.wrap(Precedence.ARITHMETIC)}"
        return PythonExpr(code, "bool", Precedence.COMPARISON, left.is_safe and right.is_safe)
    function = _ORDERINGS[operator]
    for certain, other in ((right, left), (left, right)):
        if certain.kind not in _CLASS_NAMES or other.kind or not certain.is_short:
            continue
        mixes_numbers = certain.is_literal and {certain.kind, expected_kind} <= NUMERIC_KINDS
        kind = expected_kind if mixes_numbers and expected_kind in _CLASS_NAMES else certain.kind
        first, name = writer.bind_once(other, "value")
        if certain is right:
            operands = (name, right.wrap(Precedence.ARITHMETIC))
        else:
            operands = (left.wrap(Precedence.ARITHMETIC), name)
        fast = f"{operands[0]} {operator} {operands[1]}"
        slow = f"{function}({operands[0]}, {operands[1]})"
        code = f"{fast} if {first}.__class__ is {_CLASS_NAMES[kind]} else {slow}"
        return PythonExpr(code, "bool", Precedence.CONDITIONAL)
    return PythonExpr(f"{function}({left.code}, {right.code})", "bool")


def membership(writer: CodeWriter, left: PythonExpr, right: PythonExpr) -> PythonExpr:
    """Write `left in right`."""
    if left.kind != "string" or not left.is_short:
        return PythonExpr(f"is_in({left.code}, {right.code})", "bool")
    # Strings equal only strings, in Python as in CEL.
    first, name = writer.bind_once(right, "container")
    element = left.wrap(Precedence.ARITHMETIC)
    code = f"{element} in {name} if {first}.__class__ is list else is_in({left.code}, {name})"
    return PythonExpr(code, "bool", Precedence.CONDITIONAL)


def membership_of_constants(
    writer: CodeWriter, left: PythonExpr, values: Sequence[Any]
) -> PythonExpr | None:
    """Write `left in [values]` for literal values; return None if a set cannot decide it."""
    if values and all(value.__class__ is str for value in values):
        names = writer.add_constant("names", frozenset(values))
        if left.kind == "string":
            code = f"{left.wrap(Precedence.ARITHMETIC)} in {names}"
            return PythonExpr(code, "bool", Precedence.COMPARISON, left.is_safe)
        first, name = writer.bind_once(left, "value")
        code = f"{first}.__class__ is str and {name} in {names}"
        return PythonExpr(code, "bool", Precedence.AND, left.is_safe)
    if values and all(value.__class__ is int and abs(value) < 2**53 for value in values):
        numbers = writer.add_constant("numbers", frozenset(values))
        if left.kind == "int":
            code = f"{left.wrap(Precedence.ARITHMETIC)} in {numbers}"
            return PythonExpr(code, "bool", Precedence.COMPARISON, left.is_safe)
        first, name = writer.bind_once(left, "value")
        numbers_list = writer.add_constant("numbers_list", list(values))
        slow = f"is_in({name}, {numbers_list})"
        code = f"{name} in {numbers} if {first}.__class__ is int else {slow}"
        return PythonExpr(code, "bool", Precedence.CONDITIONAL, left.is_safe)
    return None


def arithmetic(
    writer: CodeWriter, operator: str, left: PythonExpr, right: PythonExpr
) -> PythonExpr:
    """Write `left + right` and the like; overflow and every other error raise."""
    function = _ARITHMETIC[operator]
    kind = left.kind if left.kind == right.kind and left.kind in (*_CLASS_NAMES, "uint") else ""
    if operator == "+" and "string" in (left.kind, right.kind) and not (left.kind and right.kind):
        literal, other = (left, right) if left.kind == "string" else (right, left)
        if literal.is_literal:
            # A literal adds no more than the length of the source: no limit needed.
            first, name = writer.bind_once(other, "text")
            operands = (literal.code, name) if literal is left else (name, literal.code)
            slow = f"add({operands[0]}, {operands[1]})"
            code = f"{operands[0]} + {operands[1]} if {first}.__class__ is str else {slow}"
            return PythonExpr(code, "string", Precedence.CONDITIONAL)
    code = f"{function}({left.code}, {right.code})"
    if kind == "double" and operator in "+-*":
        code = f"{left.wrap(Precedence.ATOM)} {operator} {right.wrap(Precedence.ATOM)}"
        return PythonExpr(code, kind, Precedence.ARITHMETIC, left.is_safe and right.is_safe)
    return PythonExpr(code, kind)


def select(operand: PythonExpr, field: str) -> PythonExpr:
    """Write `operand.field` as `operand['field']`: only a map accepts a string subscript."""
    if operand.kind and operand.kind != "map":
        return PythonExpr(f"index({operand.code}, {field!r})")
    return PythonExpr(f"{operand.wrap(Precedence.ATOM)}[{field!r}]")


def has(writer: CodeWriter, operand: PythonExpr, field: str) -> PythonExpr:
    """Write `has(operand.field)`."""
    first, name = writer.bind_once(operand, "fields")
    slow = f"has_field({name}, {field!r})"
    code = f"{field!r} in {name} if {first}.__class__ is dict else {slow}"
    return PythonExpr(code, "bool", Precedence.CONDITIONAL)


def contains(writer: CodeWriter, operands: Sequence[PythonExpr], expected_kind: str) -> PythonExpr:
    """Write `text.contains(part)`."""
    text, part = operands
    if part.kind != "string" or not part.is_short:
        return PythonExpr(f"contains({text.code}, {part.code})", "bool")
    first, name = writer.bind_once(text, "text")
    fast = f"{part.wrap(Precedence.ARITHMETIC)} in {name}"
    slow = f"contains({name}, {part.code})"
    code = f"{fast} if {first}.__class__ is str else {slow}"
    return PythonExpr(code, "bool", Precedence.CONDITIONAL)


def _text_method(
    method: str,
    function: str,
    writer: CodeWriter,
    operands: Sequence[PythonExpr],
    expected_kind: str,
) -> PythonExpr:
    """Write `text.startsWith(part)` or `text.endsWith(part)`."""
    text, part = operands
    if part.kind != "string":
        return PythonExpr(f"{function}({text.code}, {part.code})", "bool")
    # Only strings and bytes have the method, and that of bytes rejects a string.
    return PythonExpr(f"{text.wrap(Precedence.ATOM)}.{method}({part.code})", "bool")


def matches(writer: CodeWriter, operands: Sequence[PythonExpr], expected_kind: str) -> PythonExpr:
    """Write `text.matches(pattern)` for a compiled pattern."""
    text, pattern = operands
    # `search` encodes the text, which raises for anything but a string.
    return PythonExpr(f"{pattern.code}.search({text.code})", "bool")


def size(writer: CodeWriter, operands: Sequence[PythonExpr], expected_kind: str) -> PythonExpr:
    """Write `size(value)`."""
    (value,) = operands
    expected = {"string": "str", "map": "dict"}.get(expected_kind, "list")
    if value.kind in ("string", "list", "map", "bytes"):
        return PythonExpr(f"len({value.code})", "int", is_safe=value.is_safe)
    first, name = writer.bind_once(value, "value")
    code = f"len({name}) if {first}.__class__ is {expected} else size({name})"
    return PythonExpr(code, "int", Precedence.CONDITIONAL)


INLINE_CALLS: Final[dict[str, Callable[[CodeWriter, Sequence[PythonExpr], str], PythonExpr]]] = {
    "contains": contains,
    "endsWith": partial(_text_method, "endswith", "ends_with"),
    "matches": matches,
    "size": size,
    "startsWith": partial(_text_method, "startswith", "starts_with"),
}
"""Standard functions whose usual case is written inline."""
