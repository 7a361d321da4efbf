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

from policyguard.cel.check.checker import CheckedExpression
from policyguard.cel.check.overloads import NOT_COMPUTED
from policyguard.cel.codegen import operations
from policyguard.cel.codegen.loops import LoopWriter
from policyguard.cel.codegen.writer import Precedence, PythonExpr
from policyguard.cel.declarations import Declarations
from policyguard.cel.functions.standard import Function
from policyguard.cel.runtime.runtime import RUNTIME, dispatch
from policyguard.cel.syntax.tree import (
    Binary,
    Call,
    Conditional,
    Constant,
    Expr,
    Has,
    Identifier,
    Index,
    ListLiteral,
    MapLiteral,
    Select,
    Unary,
)
from policyguard.cel.types.times import Duration, Timestamp
from policyguard.cel.types.uint import Uint

__all__ = ["GeneratedFunction", "generate", "generate_prefilter"]

_RESERVED_NAMES: Final = ("evaluate", "evaluate_absorbing", "budget", "meter", "error", "left")

_MAX_EXACT_INT: Final = 2**53
"""Up to here int and double hold the same whole numbers. Beyond, CEL compares an int with a double
by making it a double, while Python compares exactly: that is left to the functions."""

_CLASSES_BY_KIND: Final[dict[str, frozenset[type]]] = {
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


class GeneratedFunction(msgspec.Struct, frozen=True):
    """The text of the function `evaluate`, and the objects that it refers to by name."""

    code: str
    constants: dict[str, Any]
    parameters: tuple[str, ...]

    def load(self) -> Callable[..., Any]:
        """The function itself."""
        # The text is ours: names are checked identifiers, everything else a `repr` or a comment.
        namespace = {**RUNTIME, **self.constants, "__builtins__": {}}
        exec(compile(self.code, "<cel>", "exec"), namespace)  # noqa: S102  # see above
        function: Callable[..., Any] = namespace["evaluate"]
        return function


def generate(
    tree: Expr, checked: CheckedExpression, declarations: Declarations, source: str
) -> GeneratedFunction:
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
    lines = fast.write_function("evaluate", tree)
    if fast.may_absorb:
        slow = _Generator(checked, source, parameters, attributes, constants, absorbing=True)
        lines += ["", "", *slow.write_function("evaluate_absorbing", tree)]
    return GeneratedFunction("\n".join(lines) + "\n", constants, parameters)


def generate_prefilter(
    conditions: Sequence[tuple[str, Expr]], checked: CheckedExpression, declarations: Declarations
) -> GeneratedFunction:
    """The Python function that tells which of many conditions, by source and tree, are not false.

    It takes the object that holds the variables. Whatever a condition is but false, it is for the
    condition's own function to say: here errors are not absorbed.
    """
    constants: dict[str, Any] = {}
    attributes = declarations.attributes
    writer = _Generator(checked, "", ("view",), attributes, constants, absorbing=False)
    return GeneratedFunction(
        "\n".join(writer.write_prefilter(conditions)) + "\n", constants, ("view",)
    )


class _Generator(LoopWriter):
    def __init__(
        self,
        checked: CheckedExpression,
        source: str,
        parameters: tuple[str, ...],
        attributes: Mapping[str, str],
        constants: dict[str, Any],
        *,
        absorbing: bool,
    ) -> None:
        super().__init__(source, (*RUNTIME, *_RESERVED_NAMES), constants, absorbing=absorbing)
        self.checked = checked
        self.parameters = {
            name: self.writer.new_name(name.replace(".", "_")) for name in parameters
        }
        self.variables = self.parameters
        self.direct_fields: dict[str, str] = {}
        """Fields that need not be read of their variables."""
        if attributes:
            view = self.parameters["view"]
            self.variables = {name: f"{view}.{where}" for name, where in attributes.items()}
            self.direct_fields = self.variables

    def write_function(self, name: str, tree: Expr) -> list[str]:
        writer = self.writer
        with writer.capture() as body:
            piece = self.write(tree)
        parameters = ", ".join(self.parameters.values())
        lines = [f"def {name}({parameters}):", *(f"    # {line}" for line in self.comment_lines())]
        self.write_counters()
        with writer.block("try:"):
            writer.insert(body)
            writer.add_line(f"return {piece.code}")
        if self.may_absorb and not self.absorbing:
            with writer.block("except ERRORS:"):
                writer.add_line("pass")
            writer.add_line(f"return evaluate_absorbing({parameters})")
        else:
            with writer.block("except ERRORS as error:"):
                writer.add_line("raise failed(reason(error)) from None")
        return [*lines, *writer.lines]

    def write_prefilter(self, conditions: Sequence[tuple[str, Expr]]) -> list[str]:
        writer = self.writer
        self.hoist_fields()
        writer.add_line("left = ()")
        for place, (self.source, tree) in enumerate(conditions):
            for line in self.comment_lines():
                writer.add_line(f"# {line}")
            self.has_loops = self.has_meter = False
            with writer.capture() as before:
                condition = self.write_condition(tree)
            with writer.block("try:"):
                self.write_counters()
                writer.insert(before)
                with writer.block(f"if {condition.code}:"):
                    writer.add_line(f"left += ({place},)")
            with writer.block("except UNDECIDED:"):
                writer.add_line(f"left += ({place},)")
        return [f"def evaluate({self.parameters['view']}):", *writer.lines, "    return left"]

    def hoist_fields(self) -> None:
        """Give names to the fields that are read, where that takes no more than to reach them."""
        for name, where in self.direct_fields.items():
            is_read = any(f"{read}.".startswith(f"{name}.") for read in self.checked.reads)
            if is_read and where.count(".") > 1:
                self.direct_fields[name] = self.writer.new_name(name.replace(".", "_"))
                self.writer.add_line(f"{self.direct_fields[name]} = {where}")

    def comment_lines(self) -> list[str]:
        lines = [line.strip() for line in self.source.split("\n") if line.strip()]
        return [line.encode("unicode_escape").decode("ascii") for line in lines]

    def write(self, node: Expr) -> PythonExpr:
        made: PythonExpr = getattr(self, f"write_{type(node).__name__.lower()}")(node)
        return made

    # Names and literals

    def write_constant(self, node: Constant) -> PythonExpr:
        value = node.value
        match value:
            case None | bool() | str() | bytes():
                kind = {type(None): "null", bool: "bool", str: "string"}.get(type(value), "bytes")
                return PythonExpr(repr(value), kind, is_safe=True, is_literal=True)
        if value.__class__ is Uint or abs(value) > _MAX_EXACT_INT or math.isnan(value):
            kind = {Uint: "uint", int: "wide int"}.get(value.__class__, "wide double")
            return PythonExpr(self.writer.add_constant("number", value), kind, is_safe=True)
        kind = "int" if value.__class__ is int else "double"
        # Not an atom: `1.x` is no Python.
        return PythonExpr(repr(value), kind, Precedence.ARITHMETIC, is_safe=True, is_literal=True)

    def write_identifier(self, node: Identifier) -> PythonExpr:
        meaning = self.checked.references.get(node)
        if isinstance(meaning, str):
            return PythonExpr(self.variables[meaning], is_safe=True)
        if meaning is not None:
            return PythonExpr(
                self.writer.add_constant("type_" + meaning.name, meaning), is_safe=True
            )
        for variable, name in reversed(self.macro_names):
            if variable.name == node.name:
                return PythonExpr(name, is_safe=True)
        return PythonExpr(f"undeclared({node.name!r})")

    def write_select(self, node: Select) -> PythonExpr:
        meaning = self.checked.references.get(node)
        if isinstance(meaning, str):
            return PythonExpr(self.variables[meaning], is_safe=True)
        if meaning is not None:
            short = meaning.name.rpartition(".")[2].lower()
            return PythonExpr(self.writer.add_constant("type_" + short, meaning), is_safe=True)
        return self.write_field(node.operand, node.field)

    def write_field(self, node: Expr, field: str) -> PythonExpr:
        """A field of `node`: where it is held apart, there."""
        meaning = self.checked.references.get(node)
        apart = self.direct_fields.get(f"{meaning}.{field}") if isinstance(meaning, str) else None
        if apart is not None:
            return PythonExpr(apart, is_safe=True)
        return operations.select(self.write(node), field)

    def write_has(self, node: Has) -> PythonExpr:
        operand = self.write(node.selection.operand)
        return operations.has(self.writer, operand, node.selection.field)

    def write_index(self, node: Index) -> PythonExpr:
        if isinstance(node.key, Constant) and isinstance(node.key.value, str):
            return self.write_field(node.operand, node.key.value)
        operand = self.write(node.operand)
        return PythonExpr(f"index({operand.code}, {self.write(node.key).code})")

    def write_listliteral(self, node: ListLiteral) -> PythonExpr:
        pieces = [self.write(item) for item in node.items]
        code = ", ".join(piece.code for piece in pieces)
        return PythonExpr(f"[{code}]", "list", is_safe=all(piece.is_safe for piece in pieces))

    def write_mapliteral(self, node: MapLiteral) -> PythonExpr:
        parts = [self.write(part).code for entry in node.entries for part in entry]
        return PythonExpr(f"make_map({', '.join(parts)})", "map")

    # Operators

    def write_unary(self, node: Unary) -> PythonExpr:
        operand = self.write(node.operand)
        if node.operator == "-":
            kind = operand.kind if operand.kind in ("int", "double") else ""
            return PythonExpr(f"negate({operand.code})", kind)
        if operand.kind == "bool":
            return PythonExpr(
                f"not {operand.wrap(Precedence.NOT)}", "bool", Precedence.NOT, operand.is_safe
            )
        return PythonExpr(f"not_({operand.code})", "bool")

    def write_binary(self, node: Binary) -> PythonExpr:
        operator = node.operator
        left = self.write(node.left)
        if operator == "in" and isinstance(node.right, ListLiteral):
            items = [item.value for item in node.right.items if isinstance(item, Constant)]
            if len(items) == len(node.right.items):
                decided = operations.membership_of_constants(self.writer, left, items)
                if decided is not None:
                    return decided
        right = self.write(node.right)
        if operator == "in" and self.macro_names:
            return PythonExpr(self.metered_call("is_in", left.code, right.code), "bool")
        if operator == "in":
            return operations.membership(self.writer, left, right)
        if operator in ("==", "!="):
            return operations.equality(self.writer, operator, left, right, self.metered_call)
        if operator in ("<", "<=", ">", ">="):
            types = self.checked.expected_types
            likely = types[node.left].kind if right.kind else types[node.right].kind
            return operations.ordering(self.writer, operator, left, right, likely)
        if (
            operator == "+"
            and self.macro_names
            and not {left.kind, right.kind} & operations.NUMERIC_KINDS
        ):
            kind = "string" if "string" in (left.kind, right.kind) else ""
            return PythonExpr(self.metered_call("add", left.code, right.code), kind)
        return operations.arithmetic(self.writer, operator, left, right)

    def write_conditional(self, node: Conditional) -> PythonExpr:
        writer = self.writer
        condition = operations.condition(writer, self.write(node.condition))
        with writer.capture() as before_then:
            then = self.write(node.then)
        with writer.capture() as before_otherwise:
            otherwise = self.write(node.otherwise)
        kind = then.kind if then.kind == otherwise.kind else ""
        if not before_then and not before_otherwise:
            code = (
                f"{then.wrap(Precedence.OR)} if {condition.wrap(Precedence.OR)} "
                f"else {otherwise.wrap(Precedence.CONDITIONAL)}"
            )
            safe = condition.is_safe and then.is_safe and otherwise.is_safe
            return PythonExpr(code, kind, Precedence.CONDITIONAL, safe)
        result = writer.new_name("chosen")
        with writer.block(f"if {condition.code}:"):
            writer.insert(before_then)
            writer.add_line(f"{result} = {then.code}")
        with writer.block("else:"):
            writer.insert(before_otherwise)
            writer.add_line(f"{result} = {otherwise.code}")
        return PythonExpr(result, kind, is_safe=True)

    # Calls

    def write_call(self, node: Call) -> PythonExpr:
        target = self.checked.calls.get(node)
        operands = [node.receiver] if node.receiver is not None else []
        operands += node.arguments
        if target is None:
            return PythonExpr(f"undeclared({node.name + '()'!r})")
        kind = target.result_type.kind if target.result_type.kind in _CERTAIN_KINDS else ""
        if target.constant_value is not NOT_COMPUTED:
            return PythonExpr(
                self.writer.add_constant(node.name, target.constant_value), kind, is_safe=True
            )
        if target.prepared_argument is not NOT_COMPUTED:
            pieces = [self.write(operand) for operand in operands[:-1]]
            wish = "pattern" if node.name == "matches" else f"{node.name}_argument"
            pieces.append(
                PythonExpr(
                    self.writer.add_constant(wish, target.prepared_argument),
                    _PREPARED,
                    is_safe=True,
                )
            )
        else:
            pieces = [self.write(operand) for operand in operands]
        linear = bool(self.macro_names) and any(function.is_linear for function in target.overloads)
        inline = None if linear else operations.INLINE_CALLS.get(node.name)
        if inline is not None and all(function.checks_operands for function in target.overloads):
            made: PythonExpr = inline(self.writer, pieces, self.expected_kind(operands[0]))
            return made
        callee = self.callee(target.overloads)
        arguments = self.arguments(target.overloads, pieces)
        if linear:
            return PythonExpr(self.metered_call(callee, *arguments), kind)
        return PythonExpr(f"{callee}({', '.join(arguments)})", kind)

    def expected_kind(self, node: Expr) -> str:
        found = self.checked.expected_types.get(node)
        return found.kind if found is not None else ""

    def callee(self, functions: tuple[Function, ...]) -> str:
        first = functions[0]
        if all(function.implementation is first.implementation for function in functions):
            return self.writer.add_constant(first.name, first.implementation)
        overloads = tuple(
            (tuple(classes for _, classes in _operand_classes(function)), function.implementation)
            for function in functions
        )
        return self.writer.add_constant(first.name, dispatch(overloads))

    def arguments(self, functions: tuple[Function, ...], pieces: list[PythonExpr]) -> list[str]:
        """The operands, checked where the function relies on their types."""
        if functions[0].checks_operands or len(functions) > 1:
            return [piece.code for piece in pieces]
        return [
            piece.code
            if expected is None
            or piece.kind == _PREPARED
            or _CLASSES_BY_KIND.get(piece.kind) == expected
            else f"expect({self.writer.add_constant(kind, expected)}, {piece.code})"
            for piece, (kind, expected) in zip(pieces, _operand_classes(functions[0]), strict=True)
        ]


_CERTAIN_KINDS: Final = frozenset({*_CLASSES_BY_KIND, "map"})
_PREPARED: Final = "prepared"
"""The kind of what a function's `constant` has made of its literal."""


def _operand_classes(function: Function) -> list[tuple[str, frozenset[type] | None]]:
    """The kind of each operand, and the classes that it may have (None: anything)."""
    receiver = () if function.receiver is None else (function.receiver,)
    operands = (*receiver, *function.parameters)
    return [(operand.kind, _CLASSES_BY_KIND.get(operand.kind)) for operand in operands]
