"""The Python text of CEL's operators, one at a time.

Where the operands' kinds are certain, an operator is Python's own. Where they are not, the likely
case is tested in place, and everything else goes to the function in `operators`: calling a
function costs more than all the rest of a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from policyguard.cel.writer import Level, Piece, Writer

__all__ = [
    "INLINE",
    "NUMBERS",
    "arithmetic",
    "condition",
    "equality",
    "has",
    "membership",
    "membership_of_constants",
    "ordering",
    "select",
]

NUMBERS: Final = frozenset({"int", "uint", "double"})
_TEXTS: Final = frozenset({"string", "bytes"})
_CLASSES: Final = {"int": "int", "double": "float", "string": "str", "bytes": "bytes"}
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


def condition(writer: Writer, piece: Piece) -> Piece:
    """`piece` where a bool must stand: anything else raises."""
    if piece.kind == "bool":
        return piece
    if piece.kind:
        return Piece(f"not_bool({piece.code})", "bool")
    first, name = writer.once(piece, "value")
    code = f"{first} is True or {name} is not False and not_bool({name})"
    return Piece(code, "bool", Level.OR)


def equality(
    writer: Writer, operator: str, left: Piece, right: Piece, linear: Callable[..., str]
) -> Piece:
    """`left == right` or `left != right`; `linear` writes the call where containers may meet."""
    safe = left.safe and right.safe
    kinds = {left.kind, right.kind}
    plain = f"{left.at(Level.ARITHMETIC)} {operator} {right.at(Level.ARITHMETIC)}"
    if kinds & _TEXTS or (left.kind == right.kind and left.kind in NUMBERS):
        return Piece(plain, "bool", Level.COMPARISON, safe)
    if kinds & {"null", "bool"} and (len(kinds) == 1 or "" in kinds):
        # None, True and False are single objects, and nothing else equals them.
        same = "is" if operator == "==" else "is not"
        code = f"{left.at(Level.ARITHMETIC)} {same} {right.at(Level.ARITHMETIC)}"
        return Piece(code, "bool", Level.COMPARISON, safe)
    for number, other in ((left, right), (right, left)):
        if number.literal and number.kind in NUMBERS and not other.kind:
            # Python's True equals 1, CEL's does not.
            first, name = writer.once(other, "value")
            number_code = number.at(Level.ARITHMETIC)
            if operator == "==":
                code = f"{first} == {number_code} and {name}.__class__ is not bool"
                return Piece(code, "bool", Level.AND, safe)
            code = f"{first} != {number_code} or {name}.__class__ is bool"
            return Piece(code, "bool", Level.OR, safe)
    call = linear("equals", left.code, right.code)
    if operator == "==":
        return Piece(call, "bool", safe=safe)
    return Piece(f"not {call}", "bool", Level.NOT, safe)


def ordering(writer: Writer, operator: str, left: Piece, right: Piece, likely: str) -> Piece:
    """`left < right` and the like. `likely` is the kind that the uncertain side probably has."""
    if left.kind == right.kind and left.kind in _CLASSES:
        code = f"{left.at(Level.ARITHMETIC)} {operator} {right.at(Level.ARITHMETIC)}"
        return Piece(code, "bool", Level.COMPARISON, left.safe and right.safe)
    function = _ORDERINGS[operator]
    for certain, other in ((right, left), (left, right)):
        if certain.kind not in _CLASSES or other.kind or not certain.is_short:
            continue
        mixed = certain.literal and certain.kind in NUMBERS and likely in NUMBERS
        kind = likely if mixed and likely in _CLASSES else certain.kind
        first, name = writer.once(other, "value")
        if certain is right:
            operands = (name, right.at(Level.ARITHMETIC))
        else:
            operands = (left.at(Level.ARITHMETIC), name)
        fast = f"{operands[0]} {operator} {operands[1]}"
        slow = f"{function}({operands[0]}, {operands[1]})"
        code = f"{fast} if {first}.__class__ is {_CLASSES[kind]} else {slow}"
        return Piece(code, "bool", Level.CONDITIONAL)
    return Piece(f"{function}({left.code}, {right.code})", "bool")


def membership(writer: Writer, left: Piece, right: Piece) -> Piece:
    """`left in right`."""
    if left.kind != "string" or not left.is_short:
        return Piece(f"is_in({left.code}, {right.code})", "bool")
    # Strings equal only strings, in Python as in CEL.
    first, name = writer.once(right, "container")
    element = left.at(Level.ARITHMETIC)
    code = f"{element} in {name} if {first}.__class__ is list else is_in({left.code}, {name})"
    return Piece(code, "bool", Level.CONDITIONAL)


def membership_of_constants(writer: Writer, left: Piece, values: Sequence[Any]) -> Piece | None:
    """`left in [values]`, where the values are literals; None where a set cannot decide it."""
    if values and all(value.__class__ is str for value in values):
        names = writer.constant("names", frozenset(values))
        if left.kind == "string":
            code = f"{left.at(Level.ARITHMETIC)} in {names}"
            return Piece(code, "bool", Level.COMPARISON, left.safe)
        first, name = writer.once(left, "value")
        code = f"{first}.__class__ is str and {name} in {names}"
        return Piece(code, "bool", Level.AND, left.safe)
    if values and all(value.__class__ is int and abs(value) < 2**53 for value in values):
        numbers = writer.constant("numbers", frozenset(values))
        if left.kind == "int":
            code = f"{left.at(Level.ARITHMETIC)} in {numbers}"
            return Piece(code, "bool", Level.COMPARISON, left.safe)
        first, name = writer.once(left, "value")
        everything = writer.constant("numbers_list", list(values))
        slow = f"is_in({name}, {everything})"
        code = f"{name} in {numbers} if {first}.__class__ is int else {slow}"
        return Piece(code, "bool", Level.CONDITIONAL, left.safe)
    return None


def arithmetic(writer: Writer, operator: str, left: Piece, right: Piece) -> Piece:
    """`left + right` and the like; overflow and every other mistake raise."""
    function = _ARITHMETIC[operator]
    kind = left.kind if left.kind == right.kind and left.kind in (*_CLASSES, "uint") else ""
    if operator == "+" and "string" in (left.kind, right.kind) and not (left.kind and right.kind):
        literal, other = (left, right) if left.kind == "string" else (right, left)
        if literal.literal:
            # Adding a literal grows a string by no more than the source is long: no bound needed.
            first, name = writer.once(other, "text")
            operands = (literal.code, name) if literal is left else (name, literal.code)
            slow = f"add({operands[0]}, {operands[1]})"
            code = f"{operands[0]} + {operands[1]} if {first}.__class__ is str else {slow}"
            return Piece(code, "string", Level.CONDITIONAL)
    code = f"{function}({left.code}, {right.code})"
    if kind == "double" and operator in "+-*":
        code = f"{left.at(Level.ATOM)} {operator} {right.at(Level.ATOM)}"
        return Piece(code, kind, Level.ARITHMETIC, left.safe and right.safe)
    return Piece(code, kind)


def select(operand: Piece, field: str) -> Piece:
    """`operand.field`, or `operand['field']`: only a map can be subscripted with a string."""
    if operand.kind and operand.kind != "map":
        return Piece(f"index({operand.code}, {field!r})")
    return Piece(f"{operand.at(Level.ATOM)}[{field!r}]")


def has(writer: Writer, operand: Piece, field: str) -> Piece:
    """`has(operand.field)`."""
    first, name = writer.once(operand, "fields")
    slow = f"has_field({name}, {field!r})"
    code = f"{field!r} in {name} if {first}.__class__ is dict else {slow}"
    return Piece(code, "bool", Level.CONDITIONAL)


def contains(writer: Writer, pieces: Sequence[Piece], likely: str) -> Piece:
    """`text.contains(part)`."""
    text, part = pieces
    if part.kind != "string" or not part.is_short:
        return Piece(f"contains({text.code}, {part.code})", "bool")
    first, name = writer.once(text, "text")
    found = f"{part.at(Level.ARITHMETIC)} in {name}"
    slow = f"contains({name}, {part.code})"
    return Piece(f"{found} if {first}.__class__ is str else {slow}", "bool", Level.CONDITIONAL)


def starts_with(writer: Writer, pieces: Sequence[Piece], likely: str) -> Piece:
    """`text.startsWith(prefix)`."""
    return _text_method("startswith", "starts_with", pieces)


def ends_with(writer: Writer, pieces: Sequence[Piece], likely: str) -> Piece:
    """`text.endsWith(suffix)`."""
    return _text_method("endswith", "ends_with", pieces)


def _text_method(method: str, function: str, pieces: Sequence[Piece]) -> Piece:
    text, part = pieces
    if part.kind != "string":
        return Piece(f"{function}({text.code}, {part.code})", "bool")
    # Only strings have the method, and bytes, which refuse a string.
    return Piece(f"{text.at(Level.ATOM)}.{method}({part.code})", "bool")


def matches(writer: Writer, pieces: Sequence[Piece], likely: str) -> Piece:
    """`text.matches(pattern)`; the pattern is a compiled one."""
    text, pattern = pieces
    # Only a string can be encoded with a name and a way to treat errors: the rest raises.
    return Piece(f"{pattern.code}.search({text.code})", "bool")


def size(writer: Writer, pieces: Sequence[Piece], likely: str) -> Piece:
    """`size(value)`."""
    (value,) = pieces
    expected = {"string": "str", "map": "dict"}.get(likely, "list")
    if value.kind in ("string", "list", "map", "bytes"):
        return Piece(f"len({value.code})", "int", safe=value.safe)
    first, name = writer.once(value, "value")
    code = f"len({name}) if {first}.__class__ is {expected} else size({name})"
    return Piece(code, "int", Level.CONDITIONAL)


INLINE: Final[dict[str, Callable[[Writer, Sequence[Piece], str], Piece]]] = {
    "contains": contains,
    "endsWith": ends_with,
    "matches": matches,
    "size": size,
    "startsWith": starts_with,
}
"""Standard functions whose usual case is written in place."""
