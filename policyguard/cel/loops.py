"""Writing macros as loops: `all`, `exists`, `exists_one`, `filter`, `map` and their relatives."""

from __future__ import annotations

from typing import Any, Final

from policyguard.cel.bounds import BOUNDS
from policyguard.cel.logic import LogicWriter
from policyguard.cel.tree import Call, Comprehension, Node, Select, Variable
from policyguard.cel.writer import Level, Piece

__all__ = ["LoopWriter"]

# Macro → (name of what it collects, what that begins as, how one element is added).
_COLLECTED: Final = {
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
        self.locals: list[tuple[Variable, str]] = []
        """The variables of the macros around the present place, and their Python names."""

    def begin(self) -> None:
        """Write what the macros draw on."""
        if self.has_loops:
            self.writer.line(f"budget = {BOUNDS.iterations}")
        if self.has_meter:
            self.writer.line("meter = Meter()")

    def linear(self, function: str, *operands: str) -> str:
        """A call of what takes the longer the more it is given: a macro's body counts it."""
        if not self.locals:
            return f"{function}({', '.join(operands)})"
        self.has_meter = True
        if function in ("equals", "is_in"):
            return f"meter.{function}({', '.join(operands)})"
        return f"meter.run({', '.join((function, *operands))})"

    def write_comprehension(self, node: Comprehension) -> Piece:
        """A macro over a list or map; the bound on iterations is drawn on first."""
        writer = self.writer
        source = self.piece(node.source)
        self.comment_on(node)
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
            if node.condition is not None and node.macro in ("all", "exists"):
                result = self.quantifier(node, node.condition, head)
            else:
                result = self.collection(node, head, names)
        del self.locals[len(self.locals) - len(names) :]
        return result

    def collection(self, node: Comprehension, head: str, names: list[str]) -> Piece:
        """A macro that visits every element: it collects, or counts."""
        writer = self.writer
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
