"""Lists and pipelines: `a && b`, and `a | b`, where the output of one is the input of the next."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from policyguard.shell.folders import AT_START, Place, Position, be_at
from policyguard.shell.plain import PlainCommand
from policyguard.shell.script.branches import leaves
from policyguard.shell.script.inputs import NO_TAIL, NOTHING, Input, Tail
from policyguard.shell.script.syntax_tree import Node

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements

_JOINING = ("&&", "||")


def run_list(reading: Statements, node: Node, given: Input, tail: Tail) -> list[int]:
    """Run `a && b`. The grammar gives the redirections of `b` to the whole list."""
    *first, last = [child for child in node.named_children if child.type != "comment"] or [node]
    reading.first_end = None
    if last is node:
        return []
    variables, operator = reading.variables, _operator(node)
    indices: list[int] = []
    is_certain, is_piped = reading.is_certain, reading.is_list_piped
    for number, child in enumerate(first):
        reading.is_certain = is_certain and not number
        reading.is_list_piped = is_piped and child.type == "list"
        is_unsure = child.type == "list" and "||" in (operator, _operator(child))
        kept = variables.keep() if is_unsure else None
        indices += reading.run(child, given, NO_TAIL)
        if kept is not None:
            variables.join_values(kept)  # in `a && b || c`, b may not have run
    first_end = reading.first_end if first[0].type == "list" else variables.keep()
    reading.is_certain = False
    behind_first = variables.position
    variables.position = be_at(behind_first.choose(operator))
    before = variables.keep() if leaves(reading, [last]) else None
    given = NOTHING if is_piped else given
    run_last = reading.redirections.run_last if tail.unread else reading.run
    indices += run_last(last, given, tail)
    position = variables.position
    if before is not None:
        variables.restore(before)
    variables.position = position.skip(operator, behind_first)
    reading.is_certain, reading.first_end = is_certain, first_end
    return indices


def _operator(node: Node) -> str:
    """Return `&&` or `||`, which joins the parts of a list."""
    return next((child.type for child in node.children if child.type in _JOINING), "")


def run_plain(reading: Statements, commands: Sequence[PlainCommand], given: Input) -> list[int]:
    """Run commands that need no tree: lists and pipelines of them."""
    max_words = reading.bounds.words
    indices: list[int] = []
    last: list[int] = []
    for command in commands:
        if len(command.words) > max_words:
            reading.check_words(command.words)
        read = given
        if command.operator == "|":
            output = reading.wrapped.outputs.static_output(last)
            read = Input(tuple(dict.fromkeys(last)), output)
        else:
            indices += last
        last = reading.wrapped.add(command.words, read, command.redirects, (), ())
    return indices + last


def run_moving(reading: Statements, commands: Sequence[PlainCommand], given: Input) -> list[int]:
    """Run commands that need no tree, and of which some may change the folder."""
    variables, add, is_certain = reading.variables, reading.wrapped.add, reading.is_certain
    indices: list[int] = []
    starts = [number for number, command in enumerate(commands) if command.operator != "|"]
    still = joined = AT_START
    joined_by = ""
    for start, end in pairwise([*starts, len(commands)]):
        command, behind_first = commands[start], variables.position
        operator = command.operator
        is_joined = operator in _JOINING
        place = behind_first.passed
        if operator != "&&" and place is not behind_first.failed:
            place = behind_first.failed if is_joined else behind_first.settle()
        if still.passed is not place or still.failed is not place:
            still = be_at(place)
        variables.position = still
        is_lone = end == start + 1
        reading.is_certain = is_certain and is_lone and not is_joined
        if is_lone:
            if len(command.words) > reading.bounds.words:
                reading.check_words(command.words)
            indices += add(command.words, given, command.redirects, (), ())
        else:
            indices += _run_stages(reading, commands[start:end], given)
        if is_joined:
            if variables.position is still and behind_first is joined and operator == joined_by:
                variables.position = joined  # another command that has not moved
            else:
                joined = variables.position = variables.position.skip(operator, behind_first)
                joined_by = operator
        elif end == len(commands) or commands[end].operator not in _JOINING:
            reading.control.stop_on_failure()
    reading.is_certain = is_certain
    return indices


def _run_stages(reading: Statements, stages: Sequence[PlainCommand], given: Input) -> list[int]:
    variables, wrapped = reading.variables, reading.wrapped
    indices: list[int] = []
    position = variables.position
    outer = reading.control.leave_loops()
    for stage in stages:
        variables.position = position
        if indices:
            given = Input(tuple(dict.fromkeys(indices)), wrapped.outputs.static_output(indices))
        reading.check_words(stage.words)
        indices = wrapped.add(stage.words, given, stage.redirects, (), ())
    reading.control.return_to(outer)
    variables.position = variables.position.join(position)
    return indices


def run_pipeline(reading: Statements, node: Node, given: Input, tail: Tail) -> list[int]:
    """Run the parts of a pipeline, of which each is a process of its own."""
    stages = [child for child in node.named_children if child.type != "comment"]
    variables = reading.variables
    behind_list: Position | None = None
    indices: list[int] = []
    for number, stage in enumerate(stages):
        is_last = number == len(stages) - 1
        before = len(reading.commands)
        kept, outer = variables.keep(), reading.control.leave_loops()
        # The grammar reads `a | b | c && d` as `a | (b | c && d)`.
        reading.is_list_piped = bool(number) and stage.type == "list"
        indices = reading.run(stage, given, tail if is_last else NO_TAIL)
        reading.control.return_to(outer)
        position = variables.position
        is_list = not is_last and _ends_in_list(stage)
        if is_last or is_list:  # in zsh the last one is no process of its own
            variables.join(kept)
        else:
            variables.restore(kept)
        if is_list:
            # The grammar reads `a && b 2>&1 | c` as `(a && b) 2>&1 | c`.
            indices = [index for index in indices if index >= before][-1:]
            behind_list = position
            for index in indices:
                variables.position = be_at(Place(reading.commands[index].folders))
        output = reading.wrapped.outputs.static_output(indices)
        given = Input(tuple(dict.fromkeys(indices)), output)
    if behind_list is not None:
        variables.position = behind_list.join(position)
    return indices


def _ends_in_list(node: Node) -> bool:
    while node.type == "redirected_statement":
        node = node.named_children[0]
    return node.type == "list"
