"""Writing macros as loops: `all`, `exists`, `exists_one`, `filter`, `map` and their relatives."""

from __future__ import annotations

from typing import Any, Final

from policyguard.cel.codegen.logic import LogicWriter
from policyguard.cel.codegen.writer import Precedence, PythonExpr
from policyguard.cel.runtime.cost_limits import COST_LIMITS
from policyguard.cel.syntax.tree import Call, Comprehension, Expr, Select, Variable

__all__ = ["LoopWriter"]

# Macro → (name of what it collects, what that begins as, how one element is added).
_ACCUMULATORS: Final = {
    "exists_one": ("count", "0", "{0} += 1"),
    "filter": ("kept", "[]", "{0}.append({1})"),
    "map": ("mapped", "[]", "{0}.append({2})"),
    "transformList": ("mapped", "[]", "{0}.append({2})"),
    "transformMap": ("mapped", "{}", "{0}[{1}] = {2}"),
}


class LoopWriter(LogicWriter):
    """Writes one function; this part of it the macros."""

    def __init__(self, *arguments: Any, absorbing: bool) -> None:
        super().__init__(*arguments, absorbing=absorbing)
        self.has_loops = False
        self.has_meter = False
        self.macro_names: list[tuple[Variable, str]] = []
        """The variables of the macros around the present place, and their Python names."""

    def write_counters(self) -> None:
        """Write what the macros draw on."""
        if self.has_loops:
            self.writer.add_line(f"budget = {COST_LIMITS.max_iterations}")
        if self.has_meter:
            self.writer.add_line("meter = Meter()")

    def metered_call(self, function: str, *operands: str) -> str:
        """A call of what takes the longer the more it is given: a macro's body counts it."""
        if not self.macro_names:
            return f"{function}({', '.join(operands)})"
        self.has_meter = True
        if function in ("equals", "is_in"):
            return f"meter.{function}({', '.join(operands)})"
        return f"meter.run({', '.join((function, *operands))})"

    def write_comprehension(self, node: Comprehension) -> PythonExpr:
        """A macro over a list or map; the bound on iterations is drawn on first."""
        writer = self.writer
        source = self.write(node.source)
        self.write_source_comment(node)
        items = writer.new_name(_name_hint(node.source))
        writer.add_line(f"{items} = {source.code}")
        if source.kind not in ("list", "map"):
            with writer.block(f"if {items}.__class__ is not list:"):
                writer.add_line(f"{items} = elements({items})")
        self.has_loops = True
        writer.add_line(f"budget -= len({items})")
        with writer.block("if budget < 0:"):
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
        del self.macro_names[len(self.macro_names) - len(names) :]
        return result

    def write_collection(self, node: Comprehension, head: str, names: list[str]) -> PythonExpr:
        """A macro that visits every element: it collects, or counts."""
        writer = self.writer
        condition: PythonExpr | None = None
        before: list[str] = []
        if node.condition is not None:
            with writer.capture() as before:
                condition = self.write_condition(node.condition)
        with writer.capture() as body:
            with writer.capture() as before_result:
                value = self.write(node.result).code if node.result is not None else ""
            writer.insert(before_result)
            collected = writer.new_name(_ACCUMULATORS[node.macro][0])
            writer.add_line(_ACCUMULATORS[node.macro][2].format(collected, names[0], value))
        writer.add_line(f"{collected} = {_ACCUMULATORS[node.macro][1]}")
        with writer.block(head):
            writer.insert(before)
            if condition is None:
                writer.insert(body)
            else:
                with writer.block(f"if {condition.code}:"):
                    writer.insert(body)
        if node.macro == "exists_one":
            return PythonExpr(f"{collected} == 1", "bool", Precedence.COMPARISON, is_safe=True)
        return PythonExpr(
            collected, "map" if node.macro == "transformMap" else "list", is_safe=True
        )

    def write_quantifier(self, node: Comprehension, predicate: Expr, head: str) -> PythonExpr:
        """`all` and `exists`: they stop at the first element that decides."""
        writer = self.writer
        exists = node.macro == "exists"
        result = writer.new_name("found" if exists else "all_hold")
        with writer.capture() as before:
            if self.absorbing:
                condition, inner = self.write_absorbable(predicate)
            else:
                condition, inner = self.write_condition(predicate), None
        certain = condition.is_safe and not before and inner is None
        self.may_absorb = self.may_absorb or not certain
        writer.add_line(f"{result} = {not exists}")
        decided = f"if {result}:" if exists else f"if not {result}:"
        if certain or not self.absorbing:
            with writer.block(head):
                writer.insert(before)
                hit = condition.code if exists else f"not {condition.wrap(Precedence.NOT)}"
                with writer.block(f"if {hit}:"):
                    writer.add_line(f"{result} = {exists}")
                    writer.add_line("break")
            return PythonExpr(result, "bool", is_safe=True)
        failure = writer.new_name("failure")
        writer.add_line(f"{failure} = None")
        with writer.block(head):
            self.write_absorbed_operand(result, failure, before, condition, inner)
            with writer.block(decided):
                writer.add_line("break")
        undecided = f"not {result}" if exists else result
        with writer.block(f"if {failure} is not None and {undecided}:"):
            writer.add_line(f"raise failed({failure})")
        return PythonExpr(result, "bool", is_safe=True)


def _name_hint(node: Expr) -> str:
    """A telling name for the value of `node`."""
    match node:
        case Select(field=field):
            return field
        case Call(name=name):
            return name
        case Comprehension(macro=macro):
            return f"{macro}_result"
    return "items"
