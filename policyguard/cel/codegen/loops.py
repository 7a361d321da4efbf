"""Generates macros as loops: `all`, `exists`, `exists_one`, `filter`, `map` and variants."""

from __future__ import annotations

from typing import Any, Final

from policyguard.cel.codegen.logic import LogicWriter
from policyguard.cel.codegen.writer import Precedence, PythonExpr
from policyguard.cel.runtime.cost_limits import COST_LIMITS
from policyguard.cel.syntax.ast import Call, Comprehension, Expr, Select, Variable

# Macro → (name of the accumulator, its initial value, the statement that adds an element).
_ACCUMULATORS: Final = {
    "exists_one": ("count", "0", "{0} += 1"),
    "filter": ("kept", "[]", "{0}.append({1})"),
    "map": ("mapped", "[]", "{0}.append({2})"),
    "transformList": ("mapped", "[]", "{0}.append({2})"),
    "transformMap": ("mapped", "{}", "{0}[{1}] = {2}"),
}


class LoopWriter(LogicWriter):
    """Writes the macros of one function."""

    def __init__(self, *arguments: Any, absorbing: bool) -> None:
        super().__init__(*arguments, absorbing=absorbing)
        self.has_loops = False
        self.has_meter = False
        self.macro_names: list[tuple[Variable, str]] = []
        """The variables of the enclosing macros, with their Python names."""

    def write_counters(self) -> None:
        """Write the counters that the macros charge."""
        if self.has_loops:
            self.writer.add_line(f"iterations = {COST_LIMITS.max_iterations}")
        if self.has_meter:
            self.writer.add_line("meter = ReadMeter()")

    def metered_call(self, function: str, *operands: str) -> str:
        """Write a call whose cost grows with its operands; inside a macro the meter counts it."""
        if not self.macro_names:
            return f"{function}({', '.join(operands)})"
        self.has_meter = True
        if function in ("equals", "is_in"):
            return f"meter.{function}({', '.join(operands)})"
        return f"meter.call({', '.join((function, *operands))})"

    def write_comprehension(self, node: Comprehension) -> PythonExpr:
        """Write a macro over a list or map; it charges the iteration limit first."""
        writer = self.writer
        source = self.write(node.source)
        self.write_source_comment(node)
        items = writer.new_name(_name_hint(node.source))
        writer.add_line(f"{items} = {source.code}")
        if source.kind not in ("list", "map"):
            with writer.block(f"if {items}.__class__ is not list:"):
                writer.add_line(f"{items} = elements({items})")
        self.has_loops = True
        writer.add_line(f"iterations -= len({items})")
        with writer.block("if iterations < 0:"):
            writer.add_line("raise too_many_iterations()")
        names = [writer.new_name(variable.name) for variable in node.variables]
        if len(names) == 1:
            head = f"for {names[0]} in {items}:"
        else:
            head = f"for {names[0]}, {names[1]} in pairs({items}):"
        self.macro_names += zip(node.variables, names, strict=True)
        with self.nested_block():
            if node.condition is not None and node.macro in ("all", "exists"):
                result = self.write_quantifier(node, node.condition, head)
            else:
                result = self.write_collection(node, head, names)
        del self.macro_names[-len(names) :]
        return result

    def write_collection(self, node: Comprehension, head: str, names: list[str]) -> PythonExpr:
        """Write a macro that visits every element: it collects or counts."""
        writer = self.writer
        hint, initial, statement = _ACCUMULATORS[node.macro]
        condition: PythonExpr | None = None
        before: list[str] = []
        if node.condition is not None:
            with writer.capture() as before:
                condition = self.write_condition(node.condition)
        with writer.capture() as body:
            with writer.capture() as before_result:
                value = self.write(node.result).code if node.result is not None else ""
            writer.insert(before_result)
            accumulator = writer.new_name(hint)
            writer.add_line(statement.format(accumulator, names[0], value))
        writer.add_line(f"{accumulator} = {initial}")
        with writer.block(head):
            writer.insert(before)
            if condition is None:
                writer.insert(body)
            else:
                with writer.block(f"if {condition.code}:"):
                    writer.insert(body)
        if node.macro == "exists_one":
            return PythonExpr(f"{accumulator} == 1", "bool", Precedence.COMPARISON)
        kind = "map" if node.macro == "transformMap" else "list"
        return PythonExpr(accumulator, kind)

    def write_quantifier(self, node: Comprehension, predicate: Expr, head: str) -> PythonExpr:
        """Write `all` or `exists`, which stop at the first element that decides."""
        writer = self.writer
        exists = node.macro == "exists"
        result = writer.new_name("found" if exists else "all_hold")
        with writer.capture() as before:
            if self.absorbing:
                condition, inner = self.write_absorbable(predicate)
            else:
                condition, inner = self.write_condition(predicate), None
        self.may_absorb = self.may_absorb or not condition.is_safe
        writer.add_line(f"{result} = {not exists}")
        decided = f"if {result}:" if exists else f"if not {result}:"
        if condition.is_safe or not self.absorbing:
            with writer.block(head):
                writer.insert(before)
                hit = condition.code if exists else f"not {condition.wrap(Precedence.NOT)}"
                with writer.block(f"if {hit}:"):
                    writer.add_line(f"{result} = {exists}")
                    writer.add_line("break")
            return PythonExpr(result, "bool")
        failure = writer.new_name("failure")
        writer.add_line(f"{failure} = None")
        with writer.block(head):
            self.write_absorbed_operand(result, failure, before, condition, inner)
            with writer.block(decided):
                writer.add_line("break")
        undecided = f"not {result}" if exists else result
        with writer.block(f"if {failure} is not None and {undecided}:"):
            writer.add_line(f"raise absorbed_error({failure})")
        return PythonExpr(result, "bool")


def _name_hint(node: Expr) -> str:
    """Return a readable name for the value of `node`."""
    match node:
        case Select(field=field):
            return field
        case Call(name=name):
            return name
        case Comprehension(macro=macro):
            return f"{macro}_result"
    return "items"
