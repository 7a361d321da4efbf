"""A checked tree to the text of a Python function.

CEL's `&&`, `||`, `all` and `exists` absorb errors: `<error> && false` is false (cel-spec
langdef.md, "Logical Operators"). Errors are rare, and without them these operators are Python's own
`and`, `or` and loops. So the first generated function assumes no errors; if one is raised where it
could be absorbed, a second function with a `try` around each operand starts over and decides. One
class generates both.

The type of a variable's value is never trusted, whatever its declaration: arguments come from a
model. Types only choose the case to test first. `PythonExpr.kind`, the type that an operator
computes, is certain.
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
from policyguard.cel.functions.function import Function
from policyguard.cel.runtime.runtime import RUNTIME, dispatch
from policyguard.cel.syntax import ast
from policyguard.cel.syntax.ast import Expr
from policyguard.cel.types.times import Duration, Timestamp
from policyguard.cel.types.uint import Uint

_ACTIVATION: Final = ("activation",)
_RESERVED_NAMES: Final = ("evaluate", "evaluate_absorbing", "iterations", "meter", "error", "kept")

_MAX_EXACT_INT: Final = 2**53 - 1
"""Up to here no two integers become the same double. Beyond, CEL converts an int to a double to
compare them, while Python compares exactly, so the runtime functions do it."""

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
"""The Python classes of each kind of value. A record may be any mapping, so maps are not listed."""


class GeneratedFunction(msgspec.Struct, frozen=True):
    """The text of the function `evaluate`, and the objects it refers to by name."""

    code: str
    constants: dict[str, Any]
    parameters: tuple[str, ...]

    def load(self) -> Callable[..., Any]:
        """Execute the text and return the function."""
        namespace = {**RUNTIME, **self.constants, "__builtins__": {}}
        # Outside text is in the code only as checked identifiers, `repr`s and escaped comments.
        exec(compile(self.code, "<cel>", "exec"), namespace)  # noqa: S102
        function: Callable[..., Any] = namespace["evaluate"]
        return function


def generate(
    tree: Expr, checked: CheckedExpression, declarations: Declarations, source: str
) -> GeneratedFunction:
    """Generate the Python function that evaluates `tree`.

    Its parameters are the variables that the tree reads, in declaration order, or only the
    activation (`Declarations.attributes`).
    """
    attributes = declarations.attributes
    used = {name for name in checked.references.values() if isinstance(name, str)}
    variables = tuple(name for name in declarations.variables if name in used)
    parameters = _ACTIVATION if attributes else variables
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
    """Generate the function that returns the indexes of the conditions that are not false.

    It takes the activation. A condition that fails is not false: its own function absorbs errors,
    this one does not.
    """
    constants: dict[str, Any] = {}
    attributes = declarations.attributes
    generator = _Generator(checked, "", _ACTIVATION, attributes, constants, absorbing=False)
    code = "\n".join(generator.write_prefilter(conditions)) + "\n"
    return GeneratedFunction(code, constants, _ACTIVATION)


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
        """Fields that the activation holds directly, with the code that reads them."""
        if attributes:
            activation = self.parameters["activation"]
            self.variables = {name: f"{activation}.{path}" for name, path in attributes.items()}
            self.direct_fields = self.variables

    def write_function(self, name: str, tree: Expr) -> list[str]:
        writer = self.writer
        with writer.capture() as body:
            expr = self.write(tree)
        parameters = ", ".join(self.parameters.values())
        lines = [f"def {name}({parameters}):", *(f"    # {line}" for line in self.comment_lines())]
        self.write_counters()
        with writer.block("try:"):
            writer.insert(body)
            writer.add_line(f"return {expr.code}")
        if self.may_absorb and not self.absorbing:
            with writer.block("except ERRORS:"):
                writer.add_line("pass")
            writer.add_line(f"return evaluate_absorbing({parameters})")
        else:
            with writer.block("except ERRORS as error:"):
                writer.add_line("raise absorbed_error(describe_error(error)) from None")
        return [*lines, *writer.lines]

    def write_prefilter(self, conditions: Sequence[tuple[str, Expr]]) -> list[str]:
        writer = self.writer
        self.hoist_fields()
        writer.add_line("kept = ()")
        for index, (self.source, tree) in enumerate(conditions):
            for line in self.comment_lines():
                writer.add_line(f"# {line}")
            self.has_loops = self.has_meter = False
            with writer.capture() as before:
                condition = self.write_condition(tree)
            with writer.block("try:"):
                self.write_counters()
                writer.insert(before)
                with writer.block(f"if {condition.code}:"):
                    writer.add_line(f"kept += ({index},)")
            with writer.block("except UNDECIDED:"):
                writer.add_line(f"kept += ({index},)")
        return [f"def evaluate({self.parameters['activation']}):", *writer.lines, "    return kept"]

    def hoist_fields(self) -> None:
        """Bind the fields that take several attribute lookups to names."""
        for name, code in self.direct_fields.items():
            is_read = any(f"{read}.".startswith(f"{name}.") for read in self.checked.reads)
            if is_read and code.count(".") > 1:
                self.direct_fields[name] = self.writer.new_name(name.replace(".", "_"))
                self.writer.add_line(f"{self.direct_fields[name]} = {code}")

    def comment_lines(self) -> list[str]:
        lines = [line.strip() for line in self.source.split("\n") if line.strip()]
        return [line.encode("unicode_escape").decode("ascii") for line in lines]

    def write(self, node: Expr) -> PythonExpr:
        expr: PythonExpr = getattr(self, f"write_{type(node).__name__.lower()}")(node)
        return expr

    # Names and literals

    def write_constant(self, node: ast.Constant) -> PythonExpr:
        value = node.value
        match value:
            case None | bool() | str() | bytes():
                kind = {type(None): "null", bool: "bool", str: "string"}.get(type(value), "bytes")
                return PythonExpr(repr(value), kind, is_safe=True, is_literal=True)
        if value.__class__ is Uint or abs(value) > _MAX_EXACT_INT or math.isnan(value):
            kind = {Uint: "uint", int: "wide int"}.get(value.__class__, "wide double")
            return PythonExpr(self.writer.add_constant("number", value), kind, is_safe=True)
        kind = "int" if value.__class__ is int else "double"
        # Not an atom: `1.x` is not Python.
        return PythonExpr(repr(value), kind, Precedence.ARITHMETIC, is_safe=True, is_literal=True)

    def write_identifier(self, node: ast.Identifier) -> PythonExpr:
        referent = self.checked.references.get(node)
        if isinstance(referent, str):
            return PythonExpr(self.variables[referent], is_safe=True)
        if referent is not None:
            name = self.writer.add_constant("type_" + referent.name, referent)
            return PythonExpr(name, is_safe=True)
        for variable, name in reversed(self.macro_names):
            if variable.name == node.name:
                return PythonExpr(name, is_safe=True)
        return PythonExpr(f"raise_undeclared({node.name!r})")

    def write_select(self, node: ast.Select) -> PythonExpr:
        referent = self.checked.references.get(node)
        if isinstance(referent, str):
            return PythonExpr(self.variables[referent], is_safe=True)
        if referent is not None:
            hint = "type_" + referent.name.rpartition(".")[2].lower()
            return PythonExpr(self.writer.add_constant(hint, referent), is_safe=True)
        return self.write_field(node.operand, node.field)

    def write_field(self, node: Expr, field: str) -> PythonExpr:
        """Write a field of `node`, read directly from the activation if it is held there."""
        referent = self.checked.references.get(node)
        if isinstance(referent, str) and f"{referent}.{field}" in self.direct_fields:
            return PythonExpr(self.direct_fields[f"{referent}.{field}"], is_safe=True)
        return operations.select(self.write(node), field)

    def write_has(self, node: ast.Has) -> PythonExpr:
        operand = self.write(node.selection.operand)
        return operations.has(self.writer, operand, node.selection.field)

    def write_index(self, node: ast.Index) -> PythonExpr:
        if isinstance(node.key, ast.Constant) and isinstance(node.key.value, str):
            return self.write_field(node.operand, node.key.value)
        operand = self.write(node.operand)
        return PythonExpr(f"index({operand.code}, {self.write(node.key).code})")

    def write_listliteral(self, node: ast.ListLiteral) -> PythonExpr:
        exprs = [self.write(item) for item in node.items]
        code = ", ".join(expr.code for expr in exprs)
        return PythonExpr(f"[{code}]", "list", is_safe=all(expr.is_safe for expr in exprs))

    def write_mapliteral(self, node: ast.MapLiteral) -> PythonExpr:
        parts = [self.write(part).code for entry in node.entries for part in entry]
        return PythonExpr(f"make_map({', '.join(parts)})", "map")

    # Operators

    def write_unary(self, node: ast.Unary) -> PythonExpr:
        operand = self.write(node.operand)
        if node.operator == "-":
            kind = operand.kind if operand.kind in ("int", "double") else ""
            return PythonExpr(f"negate({operand.code})", kind)
        if operand.kind == "bool":
            code = f"not {operand.wrap(Precedence.NOT)}"
            return PythonExpr(code, "bool", Precedence.NOT, operand.is_safe)
        return PythonExpr(f"not_({operand.code})", "bool")

    def write_binary(self, node: ast.Binary) -> PythonExpr:
        operator = node.operator
        left = self.write(node.left)
        if operator == "in" and isinstance(node.right, ast.ListLiteral):
            items = [item.value for item in node.right.items if isinstance(item, ast.Constant)]
            if len(items) == len(node.right.items):
                test = operations.membership_of_constants(self.writer, left, items)
                if test is not None:
                    return test
        right = self.write(node.right)
        if operator == "in" and self.macro_names:
            return PythonExpr(self.metered_call("is_in", left.code, right.code), "bool")
        if operator == "in":
            return operations.membership(self.writer, left, right)
        if operator in ("==", "!="):
            return operations.equality(self.writer, operator, left, right, self.metered_call)
        if operator in ("<", "<=", ">", ">="):
            types = self.checked.expected_types
            expected = types[node.left].kind if right.kind else types[node.right].kind
            return operations.ordering(self.writer, operator, left, right, expected)
        kinds = {left.kind, right.kind}
        if operator == "+" and self.macro_names and not kinds & operations.NUMERIC_KINDS:
            kind = "string" if "string" in kinds else ""
            return PythonExpr(self.metered_call("add", left.code, right.code), kind)
        return operations.arithmetic(self.writer, operator, left, right)

    def write_conditional(self, node: ast.Conditional) -> PythonExpr:
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
        return PythonExpr(result, kind)

    # Calls

    def write_call(self, node: ast.Call) -> PythonExpr:
        resolved = self.checked.calls.get(node)
        if resolved is None:
            return PythonExpr(f"raise_undeclared({node.name + '()'!r})")
        overloads = resolved.overloads
        operands = [node.receiver] if node.receiver is not None else []
        operands += node.arguments
        kind = resolved.result_type.kind if resolved.result_type.kind in _CERTAIN_KINDS else ""
        if resolved.constant_value is not NOT_COMPUTED:
            name = self.writer.add_constant(node.name, resolved.constant_value)
            return PythonExpr(name, kind, is_safe=True)
        if resolved.prepared_argument is not NOT_COMPUTED:
            exprs = [self.write(operand) for operand in operands[:-1]]
            hint = "pattern" if node.name == "matches" else f"{node.name}_argument"
            name = self.writer.add_constant(hint, resolved.prepared_argument)
            exprs.append(PythonExpr(name, _PREPARED, is_safe=True))
        else:
            exprs = [self.write(operand) for operand in operands]
        is_metered = bool(self.macro_names) and any(overload.is_linear for overload in overloads)
        inline = None if is_metered else operations.INLINE_CALLS.get(node.name)
        if inline is not None and all(overload.checks_operands for overload in overloads):
            expr: PythonExpr = inline(self.writer, exprs, self.expected_kind(operands[0]))
            return expr
        callee = self.callee(overloads)
        arguments = self.arguments(overloads, exprs)
        if is_metered:
            return PythonExpr(self.metered_call(callee, *arguments), kind)
        return PythonExpr(f"{callee}({', '.join(arguments)})", kind)

    def expected_kind(self, node: Expr) -> str:
        return self.checked.expected_types[node].kind

    def callee(self, overloads: tuple[Function, ...]) -> str:
        first = overloads[0]
        if all(overload.implementation is first.implementation for overload in overloads):
            return self.writer.add_constant(first.name, first.implementation)
        cases = tuple(
            (tuple(classes for _, classes in _operand_classes(overload)), overload.implementation)
            for overload in overloads
        )
        return self.writer.add_constant(first.name, dispatch(cases))

    def arguments(self, overloads: tuple[Function, ...], exprs: list[PythonExpr]) -> list[str]:
        """Return the operands, with a class check where the function relies on one."""
        if overloads[0].checks_operands or len(overloads) > 1:
            return [expr.code for expr in exprs]
        return [
            expr.code
            if classes is None
            or expr.kind == _PREPARED
            or _CLASSES_BY_KIND.get(expr.kind) == classes
            else f"require_class({self.writer.add_constant(kind, classes)}, {expr.code})"
            for expr, (kind, classes) in zip(exprs, _operand_classes(overloads[0]), strict=True)
        ]


_CERTAIN_KINDS: Final = frozenset({*_CLASSES_BY_KIND, "map"})
_PREPARED: Final = "prepared"
"""The kind of an argument that `Function.prepare_literal` returned."""


def _operand_classes(function: Function) -> list[tuple[str, frozenset[type] | None]]:
    """Return the kind of each operand, and its allowed classes (None: any)."""
    receiver = () if function.receiver is None else (function.receiver,)
    operands = (*receiver, *function.parameters)
    return [(operand.kind, _CLASSES_BY_KIND.get(operand.kind)) for operand in operands]
