"""Branches: the parts of `if` and `case`, of which one runs, or none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from policyguard.shell.folders import be_at
from policyguard.shell.script.inputs import Input, Tail
from policyguard.shell.script.syntax_tree import Node
from policyguard.shell.script.variables.values import Kept

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements

_CLAUSES = frozenset(("elif_clause", "else_clause"))
_FALLING = frozenset((";&", ";;&"))
"""Ends of a part of `case` behind which another part may run."""
_LEAVING = re.compile(r"(exit|return)(?:[ \t]+(?:\d+|\$\?))?")


def run_if(reading: Statements, node: Node, given: Input, tail: Tail) -> list[int]:
    """Run the conditions one after the other, and each part as if the others did not run."""
    variables = reading.variables
    indices, ends = list[int](), list[Kept]()
    clauses = [node, *(child for child in node.children if child.type in _CLAUSES)]
    for clause in clauses:
        condition, body = _split_clause(clause)
        indices += reading.run_tolerating_failure(condition, given, tail)
        before = variables.keep()
        variables.position = be_at(before.position.passed)
        indices += reading.run_all(body, given, tail)
        if not leaves(reading, body):
            ends.append(variables.keep())
        variables.restore(before)
        variables.position = be_at(before.position.failed)
    if clauses[-1].type != "else_clause":
        ends.append(variables.keep())
    _join(reading, ends)
    return indices


def _join(reading: Statements, ends: list[Kept]) -> None:
    """Give each variable the values that it has at any of these ends."""
    if ends:
        reading.variables.restore(ends[-1])
        reading.variables.join(*ends[:-1])


def leaves(reading: Statements, nodes: Sequence[Node]) -> bool:
    """Whether nothing runs behind these statements: the last is `exit`, or ends a function."""
    last = next((node for node in reversed(nodes) if node.type != "comment"), None)
    if last is None or reading.is_in_background(last):
        return False
    if last.type == "compound_statement":
        return leaves(reading, last.named_children)
    match = _LEAVING.fullmatch(reading.text(last)) if last.type == "command" else None
    return (
        match is not None
        and reading.wrapped.is_builtin(match[1])
        and (match[1] == "exit" or reading.functions.is_own_text)
    )


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
        end = variables.keep()
        takes_all = takes_all or reading.text(item.named_children[0]) == "*"
        variables.restore(before)
        if leaves(reading, item.named_children):
            continue
        ends.append(end)
        if item.children[-1].type in _FALLING:
            variables.join(end)
    if not takes_all:
        ends.append(before)
    _join(reading, ends)
    return indices
