"""Lists and pipelines: `a && b`, and `a | b`, where the output of one is the input of the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policyguard.shell.script.branches import leaves
from policyguard.shell.script.inputs import NO_TAIL, Input, Tail
from policyguard.shell.script.syntax_tree import Node

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements


def run_list(reading: Statements, node: Node, given: Input, tail: Tail) -> list[int]:
    """Run `a && b`. The grammar gives the redirections of `b` to the whole list."""
    *first, last = [child for child in node.named_children if child.type != "comment"] or [node]
    if last is node:
        return []
    indices: list[int] = []
    for child in first:
        is_unsure = child.type == "list" and "||" in (_operator(node), _operator(child))
        kept = reading.variables.keep() if is_unsure else None
        indices += reading.run(child, given, NO_TAIL)
        if kept is not None:
            reading.variables.join(kept)  # in `a && b || c`, b may not have run
    before = reading.variables.keep() if leaves(reading, [last]) else None
    indices += reading.run(last, given, tail)
    if before is not None:
        reading.variables.restore(before)
    return indices


def _operator(node: Node) -> str:
    """Return `&&` or `||`, which joins the parts of a list."""
    return next((child.type for child in node.children if child.type in ("&&", "||")), "")


def run_pipeline(reading: Statements, node: Node, given: Input, tail: Tail) -> list[int]:
    """Run the parts of a pipeline, of which each is a process of its own."""
    stages = [child for child in node.named_children if child.type != "comment"]
    indices: list[int] = []
    for number, stage in enumerate(stages):
        is_last = number == len(stages) - 1
        before = len(reading.commands)
        kept = reading.variables.keep()
        indices = reading.run(stage, given, tail if is_last else NO_TAIL)
        if is_last:  # in zsh it is no process of its own
            reading.variables.join(kept)
        else:
            reading.variables.restore(kept)
        if not is_last and _ends_in_list(stage):
            # The grammar reads `a && b 2>&1 | c` as `(a && b) 2>&1 | c`.
            indices = [index for index in indices if index >= before][-1:]
        output = reading.wrapped.outputs.static_output(indices)
        given = Input(tuple(dict.fromkeys(indices)), output)
    return indices


def _ends_in_list(node: Node) -> bool:
    while node.type == "redirected_statement":
        node = node.named_children[0]
    return node.type == "list"
