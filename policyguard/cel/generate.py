"""A checked tree → the text of a Python function (names, literals, operators, calls).

Two functions, in fact. CEL's `&&`, `||`, `all` and `exists` absorb errors: `<error> && false` is
false (cel-spec langdef.md, "Logical Operators"). But errors are rare, and as long as none occurs
they are Python's own `and`, `or` and loops. So the first function is written as if there were no
errors; when one is raised where it could be absorbed, the second one, written with a `try` around
each operand, starts over and decides. Both are made by the same class.

What a variable holds is never taken for granted, whatever its declaration: arguments come from a
model. Types steer which case is tested first. Only what operators themselves compute (`Piece.kind`)
is certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from policyguard.cel import operations
from policyguard.cel.calls import UNPREPARED
from policyguard.cel.check import Checked
from policyguard.cel.declarations import Declarations
from policyguard.cel.functions import Function
from policyguard.cel.loops import LoopWriter
from policyguard.cel.runtime import RUNTIME, dispatch
from policyguard.cel.times import Duration, Timestamp
from policyguard.cel.tree import (
    Binary,
    Call,
    Conditional,
    Constant,
    Has,
    Identifier,
    Index,
    ListLiteral,
    MapLiteral,
    Node,
    Select,
    Unary,
)
from policyguard.cel.uint import Uint
from policyguard.cel.writer import Level, Piece

__all__ = ["Generated", "generate", "generate_sieve"]

_OWN_NAMES: Final = ("evaluate", "evaluate_absorbing", "budget", "meter", "error", "left")

_EXACT: Final = 2**53
"""Up to here int and double hold the same whole numbers. Beyond, CEL compares an int with a double
by making it a double, while Python compares exactly: that is left to the functions."""

_CLASSES: Final[dict[str, frozenset[type]]] = {
    "bool": frozenset({bool}),
    "int": frozenset({int}),
    "uint": frozenset({Uint}),
    "double": frozenset({float}),
    "string": frozenset({str}),
    "bytes": frozenset({bytes}),
    "timestamp": frozenset({Timestamp}),
    "duration": frozenset({Duration}),
    "list": frozenset({list, tuple}),
}
"""The Python classes of each kind of value. A record may be any mapping, so maps are left out."""


class Generated(msgspec.Struct, frozen=True):
    """The text of the function `evaluate`, and the objects that it refers to by name."""

    code: str
    names: dict[str, Any]
    parameters: tuple[str, ...]

    def function(self) -> Callable[..., Any]:
        """The function itself."""
        # The text is ours: names are checked identifiers, everything else a `repr` or a comment.
        namespace = {**RUNTIME, **self.names, "__builtins__": {}}
        exec(compile(self.code, "<cel>", "exec"), namespace)  # noqa: S102  # see above
        function: Callable[..., Any] = namespace["evaluate"]
        return function


def generate(tree: Node, checked: Checked, declarations: Declarations, source: str) -> Generated:
    """The Python function that evaluates `tree`.

    Its parameters are the variables that the tree refers to, in the order of their declaration; or
    it is one, of which it reads them (`Declarations.attributes`).
    """
    attributes = declarations.attributes
    referred = {name for name in checked.references.values() if isinstance(name, str)}
    parameters = tuple(name for name in declarations.variables if name in referred)
    if attributes:
        parameters = ("view",)
    constants: dict[str, Any] = {}
    fast = _Generator(checked, source, parameters, attributes, constants, absorbing=False)
    lines = fast.function("evaluate", tree)
    if fast.may_absorb:
        slow = _Generator(checked, source, parameters, attributes, constants, absorbing=True)
        lines += ["", "", *slow.function("evaluate_absorbing", tree)]
    return Generated("\n".join(lines) + "\n", constants, parameters)


def generate_sieve(
    conditions: Sequence[tuple[str, Node]], checked: Checked, declarations: Declarations
) -> Generated:
    """The Python function that tells which of many conditions, by source and tree, are not false.

    It takes the object that holds the variables. Whatever a condition is but false, it is for the
    condition's own function to say: here errors are not absorbed.
    """
    constants: dict[str, Any] = {}
    attributes = declarations.attributes
    writer = _Generator(checked, "", ("view",), attributes, constants, absorbing=False)
    return Generated("\n".join(writer.sieve(conditions)) + "\n", constants, ("view",))


class _Generator(LoopWriter):
    def __init__(
        self,
        checked: Checked,
        source: str,
        parameters: tuple[str, ...],
        attributes: Mapping[str, str],
        constants: dict[str, Any],
        *,
        absorbing: bool,
    ) -> None:
        super().__init__(source, (*RUNTIME, *_OWN_NAMES), constants, absorbing=absorbing)
        self.checked = checked
        self.parameters = {name: self.writer.name(name.replace(".", "_")) for name in parameters}
        self.variables = self.parameters
        self.apart: dict[str, str] = {}
        """Fields that need not be read of their variables."""
        if attributes:
            view = self.parameters["view"]
            self.variables = {name: f"{view}.{where}" for name, where in attributes.items()}
            self.apart = self.variables

    def function(self, name: str, tree: Node) -> list[str]:
        writer = self.writer
        with writer.aside() as body:
            piece = self.piece(tree)
        parameters = ", ".join(self.parameters.values())
        lines = [f"def {name}({parameters}):", *(f"    # {line}" for line in self.comment_lines())]
        self.begin()
        with writer.block("try:"):
            writer.insert(body)
            writer.line(f"return {piece.code}")
        if self.may_absorb and not self.absorbing:
            with writer.block("except ERRORS:"):
                writer.line("pass")
            writer.line(f"return evaluate_absorbing({parameters})")
        else:
            with writer.block("except ERRORS as error:"):
                writer.line("raise failed(reason(error)) from None")
        return [*lines, *writer.lines]

    def sieve(self, conditions: Sequence[tuple[str, Node]]) -> list[str]:
        writer = self.writer
        self.fetch_ahead()
        writer.line("left = ()")
        for place, (self.source, tree) in enumerate(conditions):
            for line in self.comment_lines():
                writer.line(f"# {line}")
            self.has_loops = self.has_meter = False
            with writer.aside() as before:
                condition = self.condition(tree)
            with writer.block("try:"):
                self.begin()
                writer.insert(before)
                with writer.block(f"if {condition.code}:"):
                    writer.line(f"left += ({place},)")
            with writer.block("except UNDECIDED:"):
                writer.line(f"left += ({place},)")
        return [f"def evaluate({self.parameters['view']}):", *writer.lines, "    return left"]

    def fetch_ahead(self) -> None:
        """Give names to the fields that are read, where that takes no more than to reach them."""
        for name, where in self.apart.items():
            is_read = any(f"{read}.".startswith(f"{name}.") for read in self.checked.reads)
            if is_read and where.count(".") > 1:
                self.apart[name] = self.writer.name(name.replace(".", "_"))
                self.writer.line(f"{self.apart[name]} = {where}")

    def comment_lines(self) -> list[str]:
        lines = [line.strip() for line in self.source.split("\n") if line.strip()]
        return [line.encode("unicode_escape").decode("ascii") for line in lines]

    def piece(self, node: Node) -> Piece:
        made: Piece = getattr(self, f"write_{type(node).__name__.lower()}")(node)
        return made

    # Names and literals

    def write_constant(self, node: Constant) -> Piece:
        value = node.value
        match value:
            case None | bool() | str() | bytes():
                kind = {type(None): "null", bool: "bool", str: "string"}.get(type(value), "bytes")
                return Piece(repr(value), kind, safe=True, literal=True)
        if value.__class__ is Uint or abs(value) > _EXACT or math.isnan(value):
            kind = {Uint: "uint", int: "wide int"}.get(value.__class__, "wide double")
            return Piece(self.writer.constant("number", value), kind, safe=True)
        kind = "int" if value.__class__ is int else "double"
        # Not an atom: `1.x` is no Python.
        return Piece(repr(value), kind, Level.ARITHMETIC, safe=True, literal=True)

    def write_identifier(self, node: Identifier) -> Piece:
        meaning = self.checked.references.get(node)
        if isinstance(meaning, str):
            return Piece(self.variables[meaning], safe=True)
        if meaning is not None:
            return Piece(self.writer.constant("type_" + meaning.name, meaning), safe=True)
        for variable, name in reversed(self.locals):
            if variable.name == node.name:
                return Piece(name, safe=True)
        return Piece(f"undeclared({node.name!r})")

    def write_select(self, node: Select) -> Piece:
        meaning = self.checked.references.get(node)
        if isinstance(meaning, str):
            return Piece(self.variables[meaning], safe=True)
        if meaning is not None:
            short = meaning.name.rpartition(".")[2].lower()
            return Piece(self.writer.constant("type_" + short, meaning), safe=True)
        return self.field(node.operand, node.field)

    def field(self, node: Node, field: str) -> Piece:
        """A field of `node`: where it is held apart, there."""
        meaning = self.checked.references.get(node)
        apart = self.apart.get(f"{meaning}.{field}") if isinstance(meaning, str) else None
        if apart is not None:
            return Piece(apart, safe=True)
        return operations.select(self.piece(node), field)

    def write_has(self, node: Has) -> Piece:
        operand = self.piece(node.selection.operand)
        return operations.has(self.writer, operand, node.selection.field)

    def write_index(self, node: Index) -> Piece:
        if isinstance(node.key, Constant) and isinstance(node.key.value, str):
            return self.field(node.operand, node.key.value)
        operand = self.piece(node.operand)
        return Piece(f"index({operand.code}, {self.piece(node.key).code})")

    def write_listliteral(self, node: ListLiteral) -> Piece:
        pieces = [self.piece(item) for item in node.items]
        code = ", ".join(piece.code for piece in pieces)
        return Piece(f"[{code}]", "list", safe=all(piece.safe for piece in pieces))

    def write_mapliteral(self, node: MapLiteral) -> Piece:
        parts = [self.piece(part).code for entry in node.entries for part in entry]
        return Piece(f"make_map({', '.join(parts)})", "map")

    # Operators

    def write_unary(self, node: Unary) -> Piece:
        operand = self.piece(node.operand)
        if node.operator == "-":
            kind = operand.kind if operand.kind in ("int", "double") else ""
            return Piece(f"negate({operand.code})", kind)
        if operand.kind == "bool":
            return Piece(f"not {operand.at(Level.NOT)}", "bool", Level.NOT, operand.safe)
        return Piece(f"not_({operand.code})", "bool")

    def write_binary(self, node: Binary) -> Piece:
        operator = node.operator
        left = self.piece(node.left)
        if operator == "in" and isinstance(node.right, ListLiteral):
            items = [item.value for item in node.right.items if isinstance(item, Constant)]
            if len(items) == len(node.right.items):
                decided = operations.membership_of_constants(self.writer, left, items)
                if decided is not None:
                    return decided
        right = self.piece(node.right)
        if operator == "in" and self.locals:
            return Piece(self.linear("is_in", left.code, right.code), "bool")
        if operator == "in":
            return operations.membership(self.writer, left, right)
        if operator in ("==", "!="):
            return operations.equality(self.writer, operator, left, right, self.linear)
        if operator in ("<", "<=", ">", ">="):
            types = self.checked.types
            likely = types[node.left].kind if right.kind else types[node.right].kind
            return operations.ordering(self.writer, operator, left, right, likely)
        if operator == "+" and self.locals and not {left.kind, right.kind} & operations.NUMBERS:
            kind = "string" if "string" in (left.kind, right.kind) else ""
            return Piece(self.linear("add", left.code, right.code), kind)
        return operations.arithmetic(self.writer, operator, left, right)

    def write_conditional(self, node: Conditional) -> Piece:
        writer = self.writer
        condition = operations.condition(writer, self.piece(node.condition))
        with writer.aside() as before_then:
            then = self.piece(node.then)
        with writer.aside() as before_otherwise:
            otherwise = self.piece(node.otherwise)
        kind = then.kind if then.kind == otherwise.kind else ""
        if not before_then and not before_otherwise:
            code = (
                f"{then.at(Level.OR)} if {condition.at(Level.OR)} "
                f"else {otherwise.at(Level.CONDITIONAL)}"
            )
            safe = condition.safe and then.safe and otherwise.safe
            return Piece(code, kind, Level.CONDITIONAL, safe)
        result = writer.name("chosen")
        with writer.block(f"if {condition.code}:"):
            writer.insert(before_then)
            writer.line(f"{result} = {then.code}")
        with writer.block("else:"):
            writer.insert(before_otherwise)
            writer.line(f"{result} = {otherwise.code}")
        return Piece(result, kind, safe=True)

    # Calls

    def write_call(self, node: Call) -> Piece:
        target = self.checked.calls.get(node)
        operands = [node.receiver] if node.receiver is not None else []
        operands += node.arguments
        if target is None:
            return Piece(f"undeclared({node.name + '()'!r})")
        kind = target.result.kind if target.result.kind in _KINDS else ""
        if target.value is not UNPREPARED:
            return Piece(self.writer.constant(node.name, target.value), kind, safe=True)
        if target.argument is not UNPREPARED:
            pieces = [self.piece(operand) for operand in operands[:-1]]
            wish = "pattern" if node.name == "matches" else f"{node.name}_argument"
            pieces.append(Piece(self.writer.constant(wish, target.argument), _PREPARED, safe=True))
        else:
            pieces = [self.piece(operand) for operand in operands]
        linear = bool(self.locals) and any(function.linear for function in target.functions)
        inline = None if linear else operations.INLINE.get(node.name)
        if inline is not None and all(function.checked for function in target.functions):
            made: Piece = inline(self.writer, pieces, self.likely(operands[0]))
            return made
        callee = self.callee(target.functions)
        arguments = self.arguments(target.functions, pieces)
        if linear:
            return Piece(self.linear(callee, *arguments), kind)
        return Piece(f"{callee}({', '.join(arguments)})", kind)

    def likely(self, node: Node) -> str:
        found = self.checked.types.get(node)
        return found.kind if found is not None else ""

    def callee(self, functions: tuple[Function, ...]) -> str:
        first = functions[0]
        if all(function.implementation is first.implementation for function in functions):
            return self.writer.constant(first.name, first.implementation)
        overloads = tuple(
            (tuple(classes for _, classes in _classes(function)), function.implementation)
            for function in functions
        )
        return self.writer.constant(first.name, dispatch(overloads))

    def arguments(self, functions: tuple[Function, ...], pieces: list[Piece]) -> list[str]:
        """The operands, checked where the function relies on their types."""
        if functions[0].checked or len(functions) > 1:
            return [piece.code for piece in pieces]
        return [
            piece.code
            if expected is None or piece.kind == _PREPARED or _CLASSES.get(piece.kind) == expected
            else f"expect({self.writer.constant(kind, expected)}, {piece.code})"
            for piece, (kind, expected) in zip(pieces, _classes(functions[0]), strict=True)
        ]


_KINDS: Final = frozenset({*_CLASSES, "map"})
_PREPARED: Final = "prepared"
"""The kind of what a function's `constant` has made of its literal."""


def _classes(function: Function) -> list[tuple[str, frozenset[type] | None]]:
    """The kind of each operand, and the classes that it may have (None: anything)."""
    receiver = () if function.receiver is None else (function.receiver,)
    operands = (*receiver, *function.parameters)
    return [(operand.kind, _CLASSES.get(operand.kind)) for operand in operands]
