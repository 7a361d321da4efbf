"""Loops: which words they run through, and how often their bodies are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from policyguard.shell.script.inputs import Input, Tail
from policyguard.shell.script.syntax_tree import EXPRESSIONS, Node
from policyguard.shell.words import is_one_word

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements


def run_for(reading: Statements, node: Node, given: Input, tail: Tail) -> list[int]:
    """Run a loop over words, for each as far as they are known and few."""
    name, values, bodies = "", list[str](), list[Node]()
    if reading.variables.positional and all(child.type != "in" for child in node.children):
        values = reading.variables.positional[1:]
    for child in node.named_children:
        if child.type == "variable_name" and not name:
            name = reading.text(child)
        elif child.type in EXPRESSIONS:
            values += reading.read_words(child)
        else:
            bodies.append(child)
    if not 0 < len(values) <= reading.bounds.loop_values or reading.loops >= 2:
        reading.variables.replace_by_one_of(name, values)
        return run_again_and_again(reading, bodies, given, tail)
    reading.loops += 1
    indices: list[int] = []
    for value in values:
        reading.variables.replace(name, value)
        indices += (
            reading.run_all(bodies, given, tail)
            if is_one_word(value)
            else run_again_and_again(reading, bodies, given, tail)
        )
    reading.loops -= 1
    reading.variables.forget([name])  # a loop may end before its last value
    return indices


def run_again_and_again(
    reading: Statements, nodes: Sequence[Node], given: Input, tail: Tail
) -> list[int]:
    """Run the statements of a loop, again as long as they change what they may read."""
    kept = reading.variables.keep()
    indices = reading.run_all(nodes, given, tail)
    while reading.variables.has_lost(kept):
        reading.variables.forget_changes(kept)
        kept = reading.variables.keep()
        indices += reading.run_all(nodes, given, tail)
    return indices
