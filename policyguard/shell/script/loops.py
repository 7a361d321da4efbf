"""Loops: which words they run through, and how often their bodies are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from policyguard.shell.command_line import MANY
from policyguard.shell.folders import Position
from policyguard.shell.script.inputs import Input, Tail
from policyguard.shell.script.syntax_tree import EXPRESSIONS, Node
from policyguard.shell.script.variables.values import Value
from policyguard.shell.words import is_one_word

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements

_READ = re.compile(r"(?:IFS=\S*[ \t]+)?read[ \t]")
_BODIES = frozenset(("do_group", "compound_statement"))


def run_for(reading: Statements, node: Node, given: Input, tail: Tail) -> list[int]:
    """Run a loop over words, for each as far as they are known and few."""
    name, values, bodies = "", list[str](), list[Node]()
    if reading.variables.positional and all(child.type != "in" for child in node.children):
        values = reading.variables.positional[1:]
    for child in node.named_children:
        if child.type == "variable_name" and not name:
            name = reading.text(child)
        elif child.type in EXPRESSIONS:
            for _ in reading.variables.try_each(reading.text(child)):
                values += reading.read_words(child)
        else:
            bodies.append(child)
    variables = reading.variables
    kept, ends, indices = variables.keep(), list[Value](), list[int]()
    is_sure_to_run = bool(values) and all(map(is_one_word, values))
    outer, bounds, places = reading.repeats, reading.bounds, list[Position]()
    is_known = 0 < len(values) * outer <= bounds.loop_values
    rounds = [[value] for value in values] if is_known else [values]
    reading.repeats *= len(rounds)
    while rounds:
        some, *rounds = rounds
        before = len(reading.commands)
        variables.replace_by_one_of(name, some)
        if len(some) == 1 and is_one_word(some[0]):
            with reading.control.loop() as early:
                indices += reading.run_all(bodies, given, tail)
            places += early
        else:
            indices += run_again_and_again(reading, bodies, given, tail)
        ends += variables.list_values(name)  # a loop may end before its last value
        now = len(reading.commands)
        if now + len(rounds) * (now - before) > bounds.commands:
            rounds = [[value for each in rounds for value in each]]
    reading.repeats = outer
    for place in places:  # `break` goes on behind all rounds
        variables.position = variables.position.join(place)
    variables.join(kept)
    variables.add_values(name, ends if is_sure_to_run else [MANY], kept)
    return indices


def run_again_and_again(
    reading: Statements, nodes: Sequence[Node], given: Input, tail: Tail
) -> list[int]:
    """Run the statements of a loop, again as long as they change what they may read."""
    variables, is_second = reading.variables, False
    kept = variables.keep()
    indices = _run_body(reading, nodes, given, tail)
    while variables.has_lost(kept):
        kept = variables.begin_again(kept, forget=is_second)
        is_second = True
        indices += _run_body(reading, nodes, given, tail)
    return indices


def _run_body(reading: Statements, nodes: Sequence[Node], given: Input, tail: Tail) -> list[int]:
    """Run the condition of a loop, if there is one, and its body."""
    bodies = [node for node in nodes if node.type in _BODIES]
    conditions = [node for node in nodes if node.type not in _BODIES]
    variables = reading.variables
    variables.lines_read.clear()
    with reading.control.loop():
        indices = reading.run_tolerating_failure(conditions, given, tail)
        read = dict(variables.lines_read) if _reads_lines(reading, conditions) else {}
        for name, lines in read.items():
            variables.replace_by_values(name, lines)
        indices += reading.run_all(bodies, given, tail)
        for name in read:  # the loop ends where there are no more lines
            variables.replace_by_values(name, (*variables.list_values(name), ""))
        return indices


def _reads_lines(reading: Statements, conditions: Sequence[Node]) -> bool:
    """Whether a loop runs while `read` reads something."""
    if len(conditions) != 1 or conditions[0].type != "command":
        return False
    loop = conditions[0].parent
    is_while = loop is not None and loop.children[0].type == "while"
    return is_while and _READ.match(reading.text(conditions[0])) is not None
