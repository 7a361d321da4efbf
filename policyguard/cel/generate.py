"""A checked tree → the text of a Python function.

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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from policyguard.cel import operations
from policyguard.cel.bounds import BOUNDS
from policyguard.cel.calls import UNPREPARED
from policyguard.cel.check import Checked
from policyguard.cel.declarations import Declarations
from policyguard.cel.functions import Function
from policyguard.cel.runtime import RUNTIME, dispatch
from policyguard.cel.times import Duration, Timestamp
from policyguard.cel.tree import (
    Binary,
    Call,
    Comprehension,
    Conditional,
    Constant,
    Has,
    Identifier,
    Index,
    ListLiteral,
    Logic,
    MapLiteral,
    Node,
    Select,
    Unary,
    Variable,
)
from policyguard.cel.uint import Uint
from policyguard.cel.writer import Level, Piece, Writer

__all__ = ["Generated", "TooManyBlocksError", "generate"]

_MOST_BLOCKS: Final = 17
"""`for` and `try` inside each other. CPython allows 20 in a function; one is around everything."""

_EXACT: Final = 2**53
"""Up to here int and double hold the same whole numbers. Beyond, CEL compares an int with a double
by making it a double, while Python compares exactly: that is left to the functions."""

_CLASSES: Final[dict[str, type]] = {
    "bool": bool,
    "int": int,
    "uint": Uint,
    "double": float,
    "string": str,
    "bytes": bytes,
    "timestamp": Timestamp,
    "duration": Duration,
}


class TooManyBlocksError(Exception):
    """More operators that absorb errors inside each other than a Python function can hold."""


class Generated:
    """The text of the function `evaluate`, and the objects that it refers to by name."""

    def __init__(self, code: str, names: dict[str, Any], parameters: tuple[str, ...]) -> None:
        self.code = code
        self.names = names
        self.parameters = parameters


def generate(tree: Node, checked: Checked, declarations: Declarations, source: str) -> Generated:
    """The Python function that evaluates `tree`.

    Its parameters are the variables that the tree refers to, in the order of their declaration.
    """
    referred = {name for name in checked.references.values() if isinstance(name, str)}
    parameters = tuple(name for name in declarations.variables if name in referred)
    constants: dict[str, Any] = {}
    fast = _Generator(checked, source, parameters, constants, absorbing=False)
    lines = fast.function("evaluate", tree)
    if fast.may_absorb:
        slow = _Generator(checked, source, parameters, constants, absorbing=True)
        lines += ["", "", *slow.function("evaluate_absorbing", tree)]
    return Generated("\n".join(lines) + "\n", constants, parameters)


class _Generator:
    def __init__(
        self,
        checked: Checked,
        source: str,
        parameters: tuple[str, ...],
        constants: dict[str, Any],
        *,
        absorbing: bool,
    ) -> None:
        self.checked = checked
        self.source = source
        self.absorbing = absorbing
        self.may_absorb = False
        self.has_loops = False
        self.blocks = 0
        own = ("evaluate", "evaluate_absorbing", "budget", "error")
        self.writer = Writer((*RUNTIME, *own), constants)
        self.variables = {name: self.writer.name(name.replace(".", "_")) for name in parameters}
        self.locals: list[tuple[Variable, str]] = []

    def function(self, name: str, tree: Node) -> list[str]:
        writer = self.writer
        with writer.aside() as body:
            piece = self.piece(tree)
        parameters = ", ".join(self.variables.values())
        lines = [f"def {name}({parameters}):", *(f"    # {line}" for line in self.comment_lines())]
        if self.has_loops:
            writer.line(f"budget = {BOUNDS.iterations}")
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

    def comment_lines(self) -> list[str]:
        lines = [line.strip() for line in self.source.split("\n") if line.strip()]
        return [line.encode("unicode_escape").decode("ascii") for line in lines]

    def piece(self, node: Node) -> Piece:
        """The Python expression for `node`; statements that it needs first are written."""
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
        return operations.select(self.piece(node.operand), node.field)

    def write_has(self, node: Has) -> Piece:
        operand = self.piece(node.selection.operand)
        return operations.has(self.writer, operand, node.selection.field)

    def write_index(self, node: Index) -> Piece:
        operand = self.piece(node.operand)
        if isinstance(node.key, Constant) and isinstance(node.key.value, str):
            return operations.select(operand, node.key.value)
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
        if operator == "in":
            return operations.membership(self.writer, left, right)
        if operator in ("==", "!="):
            return operations.equality(self.writer, operator, left, right)
        if operator in ("<", "<=", ">", ">="):
            types = self.checked.types
            likely = types[node.left].kind if right.kind else types[node.right].kind
            return operations.ordering(self.writer, operator, left, right, likely)
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

    # Logic

    def condition(self, node: Node) -> Piece:
        return operations.condition(self.writer, self.piece(node))

    def write_logic(self, node: Logic) -> Piece:
        if self.absorbing:
            holds, failure = self.absorb(node)
            if failure is not None:
                with self.writer.block(f"if {failure} is not None:"):
                    self.writer.line(f"raise failed({failure})")
            return holds
        writer = self.writer
        pending: list[Piece] = []
        for operand in node.operands:
            self.may_absorb = self.may_absorb or not all(piece.safe for piece in pending)
            with writer.aside() as before:
                piece = self.condition(operand)
            if not before or not pending:
                writer.insert(before)
                pending.append(replace(piece, safe=piece.safe and not before))
                continue
            # The statements that this operand needs must run only if the operand does.
            holds_name = writer.name("holds")
            writer.line(f"{holds_name} = {_joined(node, pending).code}")
            with writer.block(_go_on(node, holds_name)):
                writer.insert(before)
                writer.line(f"{holds_name} = {piece.code}")
            pending = [Piece(holds_name, "bool")]
        return _joined(node, pending)

    def absorb(self, node: Logic) -> tuple[Piece, str | None]:
        """The value of `node`, and the name that holds the error it has instead, or None.

        An operator directly inside another hands its error over in that variable, so that only
        the innermost operands need a `try`.
        """
        writer = self.writer
        operands: list[tuple[list[str], Piece, str | None]] = []
        with self.inner_block():
            for operand in node.operands:
                with writer.aside() as before:
                    operands.append((before, *self.absorbable(operand)))
        *others, (last_before, _, last_failure) = operands
        certain = all(piece.safe and not (before or failed) for before, piece, failed in others)
        if certain and not last_before and last_failure is None:
            return _joined(node, [piece for _, piece, _ in operands]), None
        writer.comment(self.source[node.span.start : node.span.end])
        holds = writer.name("holds")
        failure = writer.name("failure")
        writer.line(f"{holds} = {node.operator == '&&'}")
        writer.line(f"{failure} = None")
        for position, operand_parts in enumerate(operands):
            if position == 0:
                self.absorb_operand(holds, failure, *operand_parts)
            else:
                with writer.block(_go_on(node, holds)):
                    self.absorb_operand(holds, failure, *operand_parts)
        with writer.block("if not " + _go_on(node, holds).removeprefix("if ")):
            writer.line(f"{failure} = None")
        return Piece(holds, "bool"), failure

    def absorbable(self, node: Node) -> tuple[Piece, str | None]:
        return self.absorb(node) if isinstance(node, Logic) else (self.condition(node), None)

    def absorb_operand(
        self, holds: str, failure: str, before: list[str], piece: Piece, inner: str | None
    ) -> None:
        """Write `holds = piece`, or its error into `failure`."""
        writer = self.writer
        if inner is not None:
            writer.insert(before)
            with writer.block(f"if {inner} is None:"):
                writer.line(f"{holds} = {piece.code}")
            with writer.block("else:"):
                writer.line(f"{failure} = {inner}")
        elif piece.safe and not before:
            writer.line(f"{holds} = {piece.code}")
        else:
            with writer.block("try:"):
                writer.insert(before)
                writer.line(f"{holds} = {piece.code}")
            with writer.block("except ERRORS as error:"):
                writer.line(f"{failure} = reason(error)")

    @contextmanager
    def inner_block(self) -> Iterator[None]:
        """Count what Python has to nest."""
        self.blocks += 1
        if self.blocks > _MOST_BLOCKS:
            raise TooManyBlocksError
        yield
        self.blocks -= 1

    # Macros

    def write_comprehension(self, node: Comprehension) -> Piece:
        writer = self.writer
        source = self.piece(node.source)
        writer.comment(self.source[node.span.start : node.span.end])
        items = writer.name(_wish(node.source))
        writer.line(f"{items} = {source.code}")
        if source.kind not in ("list", "map"):
            with writer.block(f"if {items}.__class__ is not list:"):
                writer.line(f"{items} = elements({items})")
        self.has_loops = True
        writer.line(f"budget -= len({items})")
        with writer.block("if budget < 0:"):
            writer.line("raise too_many_iterations()")
        names = [writer.name(variable.name) for variable in node.variables]
        if len(names) == 1:
            head = f"for {names[0]} in {items}:"
        else:
            head = f"for {names[0]}, {names[1]} in pairs({items}):"
        self.locals += zip(node.variables, names, strict=True)
        with self.inner_block():
            result = self.loop(node, head, names)
        del self.locals[len(self.locals) - len(names) :]
        return result

    def loop(self, node: Comprehension, head: str, names: list[str]) -> Piece:
        writer = self.writer
        if node.condition is not None and node.macro in ("all", "exists"):
            return self.quantifier(node, node.condition, head)
        condition: Piece | None = None
        before: list[str] = []
        if node.condition is not None:
            with writer.aside() as before:
                condition = self.condition(node.condition)
        with writer.aside() as body:
            with writer.aside() as before_result:
                value = self.piece(node.result).code if node.result is not None else ""
            writer.insert(before_result)
            collected = writer.name(_COLLECTED[node.macro][0])
            writer.line(_COLLECTED[node.macro][2].format(collected, names[0], value))
        writer.line(f"{collected} = {_COLLECTED[node.macro][1]}")
        with writer.block(head):
            writer.insert(before)
            if condition is None:
                writer.insert(body)
            else:
                with writer.block(f"if {condition.code}:"):
                    writer.insert(body)
        if node.macro == "exists_one":
            return Piece(f"{collected} == 1", "bool", Level.COMPARISON, safe=True)
        return Piece(collected, "map" if node.macro == "transformMap" else "list", safe=True)

    def quantifier(self, node: Comprehension, predicate: Node, head: str) -> Piece:
        """`all` and `exists`: they stop at the first element that decides."""
        writer = self.writer
        exists = node.macro == "exists"
        result = writer.name("found" if exists else "all_hold")
        with writer.aside() as before:
            if self.absorbing:
                condition, inner = self.absorbable(predicate)
            else:
                condition, inner = self.condition(predicate), None
        certain = condition.safe and not before and inner is None
        self.may_absorb = self.may_absorb or not certain
        writer.line(f"{result} = {not exists}")
        decided = f"if {result}:" if exists else f"if not {result}:"
        if certain or not self.absorbing:
            with writer.block(head):
                writer.insert(before)
                hit = condition.code if exists else f"not {condition.at(Level.NOT)}"
                with writer.block(f"if {hit}:"):
                    writer.line(f"{result} = {exists}")
                    writer.line("break")
            return Piece(result, "bool", safe=True)
        failure = writer.name("failure")
        writer.line(f"{failure} = None")
        with writer.block(head):
            self.absorb_operand(result, failure, before, condition, inner)
            with writer.block(decided):
                writer.line("break")
        undecided = f"not {result}" if exists else result
        with writer.block(f"if {failure} is not None and {undecided}:"):
            writer.line(f"raise failed({failure})")
        return Piece(result, "bool", safe=True)

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
            pieces.append(Piece(self.writer.constant(wish, target.argument), safe=True))
        else:
            pieces = [self.piece(operand) for operand in operands]
        if (inline := operations.INLINE.get(node.name)) is not None and target.functions[0].checked:
            made: Piece = inline(self.writer, pieces, self.likely(operands[0]))
            return made
        arguments = ", ".join(self.arguments(target.functions, pieces))
        return Piece(f"{self.callee(target.functions)}({arguments})", kind)

    def likely(self, node: Node) -> str:
        found = self.checked.types.get(node)
        return found.kind if found is not None else ""

    def callee(self, functions: tuple[Function, ...]) -> str:
        first = functions[0]
        if all(function.implementation is first.implementation for function in functions):
            return self.writer.constant(first.name, first.implementation)
        overloads = tuple((_classes(function), function.implementation) for function in functions)
        return self.writer.constant(first.name, dispatch(overloads))

    def arguments(self, functions: tuple[Function, ...], pieces: list[Piece]) -> list[str]:
        """The operands, checked where the function relies on their types."""
        if functions[0].checked or len(functions) > 1:
            return [piece.code for piece in pieces]
        return [
            piece.code
            if expected is None or _CLASSES.get(piece.kind) is expected or piece.is_name
            else f"expect({self.writer.constant(expected.__name__, expected)}, {piece.code})"
            for piece, expected in zip(pieces, _classes(functions[0]), strict=True)
        ]


_KINDS: Final = frozenset({*_CLASSES, "list", "map"})

# Macro → (name of what it collects, what that begins as, how one element is added).
_COLLECTED: Final = {
    "exists_one": ("count", "0", "{0} += 1"),
    "filter": ("kept", "[]", "{0}.append({1})"),
    "map": ("mapped", "[]", "{0}.append({2})"),
    "transformList": ("mapped", "[]", "{0}.append({2})"),
    "transformMap": ("mapped", "{}", "{0}[{1}] = {2}"),
}


def _joined(node: Logic, pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    word, level = ("and", Level.AND) if node.operator == "&&" else ("or", Level.OR)
    code = f" {word} ".join(piece.at(level) for piece in pieces)
    return Piece(code, "bool", level, all(piece.safe for piece in pieces))


def _go_on(node: Logic, holds: str) -> str:
    """The test whether the next operand is needed."""
    return f"if {holds}:" if node.operator == "&&" else f"if not {holds}:"


def _wish(node: Node) -> str:
    """A telling name for the value of `node`."""
    match node:
        case Select(field=field):
            return field
        case Call(name=name):
            return name
        case Comprehension(macro=macro):
            return f"{macro}_result"
    return "items"


def _classes(function: Function) -> tuple[type | None, ...]:
    receiver = () if function.receiver is None else (function.receiver,)
    return tuple(_CLASSES.get(kind.kind) for kind in (*receiver, *function.parameters))
