"""The Python text of CEL's operators, one at a time.

Where the operands' kinds are certain, an operator is Python's own. Where they are not, the likely
case is tested in place, and everything else goes to the function in `operators`: calling a
function costs more than all the rest of a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from policyguard.cel.codegen.writer import CodeWriter, Precedence, PythonExpr

__all__ = [
    "INLINE_CALLS",
    "NUMERIC_KINDS",
    "arithmetic",
    "condition",
    "equality",
    "has",
    "membership",
    "membership_of_constants",
    "ordering",
    "select",
]

NUMERIC_KINDS: Final = frozenset({"int", "uint", "double"})
_TEXT_KINDS: Final = frozenset({"string", "bytes"})
_CLASS_NAMES: Final = {"int": "int", "double": "float", "string": "str", "bytes": "bytes"}
_ORDERINGS: Final = {
    "<": "less",
    "<=": "less_or_equal",
    ">": "greater",
    ">=": "greater_or_equal",
}
_ARITHMETIC: Final = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "%": "modulo",
}


def condition(writer: CodeWriter, piece: PythonExpr) -> PythonExpr:
    """`piece` where a bool must stand: anything else raises."""
    if piece.kind == "bool":
        return piece
    if piece.kind:
        return PythonExpr(f"not_bool({piece.code})", "bool")
    first, name = writer.bind_once(piece, "value")
    code = f"{first} is True or {name} is not False and not_bool({name})"
    return PythonExpr(code, "bool", Precedence.OR)


def equality(
    writer: CodeWriter,
    operator: str,
    left: PythonExpr,
    right: PythonExpr,
    metered_call: Callable[..., str],
) -> PythonExpr:
    """`left == right` or `left != right`; `linear` writes the call where containers may meet."""
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
    """`left < right` and the like. `likely` is the kind that the uncertain side probably has."""
    if left.kind == right.kind and left.kind in _CLASS_NAMES:
        code = f"{left.wrap(Precedence.ARITHMETIC)} {operator} {right.wrap(Precedence.ARITHMETIC)}"
        return PythonExpr(code, "bool", Precedence.COMPARISON, left.is_safe and right.is_safe)
    function = _ORDERINGS[operator]
    for certain, other in ((right, left), (left, right)):
        if certain.kind not in _CLASS_NAMES or other.kind or not certain.is_short:
            continue
        mixed = (
            certain.is_literal and certain.kind in NUMERIC_KINDS and expected_kind in NUMERIC_KINDS
        )
        kind = expected_kind if mixed and expected_kind in _CLASS_NAMES else certain.kind
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
    """`left in right`."""
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
    """`left in [values]`, where the values are literals; None where a set cannot decide it."""
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
        everything = writer.add_constant("numbers_list", list(values))
        slow = f"is_in({name}, {everything})"
        code = f"{name} in {numbers} if {first}.__class__ is int else {slow}"
        return PythonExpr(code, "bool", Precedence.CONDITIONAL, left.is_safe)
    return None


def arithmetic(
    writer: CodeWriter, operator: str, left: PythonExpr, right: PythonExpr
) -> PythonExpr:
    """`left + right` and the like; overflow and every other mistake raise."""
    function = _ARITHMETIC[operator]
    kind = left.kind if left.kind == right.kind and left.kind in (*_CLASS_NAMES, "uint") else ""
    if operator == "+" and "string" in (left.kind, right.kind) and not (left.kind and right.kind):
        literal, other = (left, right) if left.kind == "string" else (right, left)
        if literal.is_literal:
            # Adding a literal grows a string by no more than the source is long: no bound needed.
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
    """`operand.field`, or `operand['field']`: only a map can be subscripted with a string."""
    if operand.kind and operand.kind != "map":
        return PythonExpr(f"index({operand.code}, {field!r})")
    return PythonExpr(f"{operand.wrap(Precedence.ATOM)}[{field!r}]")


def has(writer: CodeWriter, operand: PythonExpr, field: str) -> PythonExpr:
    """`has(operand.field)`."""
    first, name = writer.bind_once(operand, "fields")
    slow = f"has_field({name}, {field!r})"
    code = f"{field!r} in {name} if {first}.__class__ is dict else {slow}"
    return PythonExpr(code, "bool", Precedence.CONDITIONAL)


def contains(writer: CodeWriter, pieces: Sequence[PythonExpr], likely: str) -> PythonExpr:
    """`text.contains(part)`."""
    text, part = pieces
    if part.kind != "string" or not part.is_short:
        return PythonExpr(f"contains({text.code}, {part.code})", "bool")
    first, name = writer.bind_once(text, "text")
    found = f"{part.wrap(Precedence.ARITHMETIC)} in {name}"
    slow = f"contains({name}, {part.code})"
    return PythonExpr(
        f"{found} if {first}.__class__ is str else {slow}", "bool", Precedence.CONDITIONAL
    )


def starts_with(writer: CodeWriter, pieces: Sequence[PythonExpr], likely: str) -> PythonExpr:
    """`text.startsWith(prefix)`."""
    return _text_method("startswith", "starts_with", pieces)


def ends_with(writer: CodeWriter, pieces: Sequence[PythonExpr], likely: str) -> PythonExpr:
    """`text.endsWith(suffix)`."""
    return _text_method("endswith", "ends_with", pieces)


def _text_method(method: str, function: str, pieces: Sequence[PythonExpr]) -> PythonExpr:
    text, part = pieces
    if part.kind != "string":
        return PythonExpr(f"{function}({text.code}, {part.code})", "bool")
    # Only strings have the method, and bytes, which refuse a string.
    return PythonExpr(f"{text.wrap(Precedence.ATOM)}.{method}({part.code})", "bool")


def matches(writer: CodeWriter, pieces: Sequence[PythonExpr], likely: str) -> PythonExpr:
    """`text.matches(pattern)`; the pattern is a compiled one."""
    text, pattern = pieces
    # Only a string can be encoded with a name and a way to treat errors: the rest raises.
    return PythonExpr(f"{pattern.code}.search({text.code})", "bool")


def size(writer: CodeWriter, pieces: Sequence[PythonExpr], likely: str) -> PythonExpr:
    """`size(value)`."""
    (value,) = pieces
    expected = {"string": "str", "map": "dict"}.get(likely, "list")
    if value.kind in ("string", "list", "map", "bytes"):
        return PythonExpr(f"len({value.code})", "int", is_safe=value.is_safe)
    first, name = writer.bind_once(value, "value")
    code = f"len({name}) if {first}.__class__ is {expected} else size({name})"
    return PythonExpr(code, "int", Precedence.CONDITIONAL)


INLINE_CALLS: Final[dict[str, Callable[[CodeWriter, Sequence[PythonExpr], str], PythonExpr]]] = {
    "contains": contains,
    "endsWith": ends_with,
    "matches": matches,
    "size": size,
    "startsWith": starts_with,
}
"""Standard functions whose usual case is written in place."""
