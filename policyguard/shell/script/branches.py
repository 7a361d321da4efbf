"""Branches: the parts of `if` and `case`, of which one runs, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policyguard.shell.script.inputs import Input, Tail
from policyguard.shell.script.syntax_tree import Node
from policyguard.shell.script.variables import Kept

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements

_CLAUSES = frozenset(("elif_clause", "else_clause"))
_FALLING = frozenset((";&", ";;&"))
"""Ends of a part of `case` behind which another part may run."""


def run_if(reading: Statements, node: Node, given: Input, tail: Tail) -> list[int]:
    """Run the conditions one after the other, and each part as if the others did not run."""
    variables = reading.variables
    indices, ends = list[int](), list[Kept]()
    clauses = [node, *(child for child in node.children if child.type in _CLAUSES)]
    for clause in clauses:
        condition, body = _split_clause(clause)
        indices += reading.run_all(condition, given, tail)
        before = variables.keep()
        indices += reading.run_all(body, given, tail)
        ends.append(variables.keep())
        if clause.type != "else_clause":
            variables.restore(before)
    variables.join(*ends)
    return indices


def _split_clause(clause: Node) -> tuple[list[Node], list[Node]]:
    """Return the commands of a condition, and those that depend on it."""
    condition, body = list[Node](), list[Node]()
    part = body if clause.type == "else_clause" else condition
    for child in clause.children:
        if child.type == "then":
            part = body
        elif child.is_named and child.type not in _CLAUSES:
            part.append(child)
    return condition, body


def run_case(reading: Statements, node: Node, given: Input, tail: Tail) -> list[int]:
    """Run each part as if the others did not run."""
    variables = reading.variables
    items = [child for child in node.named_children if child.type == "case_item"]
    others = [child for child in node.named_children if child.type != "case_item"]
    indices = reading.run_all(others, given, tail)
    before, ends, takes_all = variables.keep(), list[Kept](), False
    for item in items:
        indices += reading.run_all([item], given, tail)
        ends.append(variables.keep())
        takes_all = takes_all or reading.text(item.named_children[0]) == "*"
        variables.restore(before)
        if item.children[-1].type in _FALLING:
            variables.join(ends[-1])
    if takes_all:
        variables.restore(ends[0])
    variables.join(*ends)
    return indices
