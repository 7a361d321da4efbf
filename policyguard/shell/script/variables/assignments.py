"""Variables that a script assigns, exports and removes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.shell.command_line import MANY, NAME, SimpleCommand
from policyguard.shell.script.evaluated import find_evaluated, run_evaluated
from policyguard.shell.script.inputs import Tail
from policyguard.shell.script.variables.assigned_names import (
    UNKNOWN_NAME,
    VARIABLE_NAME,
    find_counted,
)
from policyguard.shell.script.variables.values import UNKNOWN, Value
from policyguard.shell.script.word_reader import read_raw, read_uncut
from policyguard.shell.words import join

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements
    from policyguard.shell.script.syntax_tree import Node


_CHANGING = frozenset("iluAc")
"""Options of `declare` with which a variable has another value than it is given."""
_LOCAL = frozenset(("local", "declare", "typeset"))
"""Declarations of variables that end with the function they stand in."""
_WITHOUT_VALUE = frozenset(("unset", "unsetenv", "local", "declare", "typeset"))
"""Declarations behind which a name without a value has none, or that of a caller."""


_MAY_LEAVE_OUT = lazy_pattern(r"[?&|]")
"""Operators of arithmetic that may leave out what stands behind them."""
_HARMLESS = {"declare": "gxr", "typeset": "gxr", "export": "", "readonly": ""}
"""Declarations that assign wherever they stand, and the options with which they still do."""


class _Assignment(NamedTuple):
    name: str
    value: Value
    is_appended: bool = False


def assign(reading: Statements, node: Node, *, is_certain: bool) -> tuple[str, ...]:
    """Read `name=value`; return the name."""
    assignment = _read_assignment(reading, node)
    _assign(reading, assignment, is_certain=is_certain and reading.replaces_values)
    return (assignment.name,)


def assign_counters(reading: Statements, header: str) -> None:
    """Read `for ((i=0;i<n;i++`: what is named may be a number, what it begins with is one."""
    reading.variables.count(VARIABLE_NAME.findall(header))
    first = header.partition(";")[0]
    if not _MAY_LEAVE_OUT.search(first):
        for name in find_counted(first):
            reading.variables.assign(name, NAME, is_certain=reading.replaces_values)


def _read_assignment(reading: Statements, node: Node) -> _Assignment:
    children = node.children
    name = reading.text(children[0]).partition("[")[0]
    for child in children[0].named_children:  # `name[$(…)]=value`
        read_raw(reading, child, quoted=True)
    value: Value = ""
    if len(children) > 2:
        is_array = children[2].type == "array"
        value = _read_array(reading, children[2]) if is_array else _read_value(reading, children[2])
        if children[0].type == "subscript":
            value = MANY
    return _Assignment(name, value, children[1].type == "+=")


def _assign(reading: Statements, assignment: _Assignment, *, is_certain: bool) -> None:
    name, value, is_appended = assignment
    change = reading.variables.append if is_appended else reading.variables.assign
    change(name, value, is_certain=is_certain)
    if isinstance(value, str):
        reading.wrapped.assign(name, value)


def _read_value(reading: Statements, node: Node) -> str:
    return join(read_uncut(reading, node), reading.bounds.words)


def _read_array(reading: Statements, node: Node) -> Value:
    """Return the words of `(a b)`; anything if some have places of their own: `([3]=a)`."""
    words: list[str] = []
    is_plain = True
    for child in node.named_children:
        is_plain = is_plain and not reading.text(child).startswith("[")
        words += reading.read_words(child) if child.type != "comment" else ()
        reading.check_length(len(words))
    return tuple(words) if is_plain else MANY


def run_declaration(reading: Statements, node: Node, tail: Tail) -> list[int]:
    """Run `export x=…`, `local`, `unset` and the like; return the index of the command."""
    reading.check_gaps(node)
    assignments: list[_Assignment] = []
    name = reading.text(node.children[0])
    words = [name]
    end = 0
    for child in node.named_children:
        if child.start_byte == end:
            reading.add_unknown("syntax error")  # the grammar took one word for two
        end = child.end_byte
        if child.type == "variable_assignment":
            assignments.append(_read_assignment(reading, child))
        else:
            for word in reading.read_words(child):
                words.append(word)
                left, equals, value = word.partition("=")  # `export "name=value"`
                if equals and left.isidentifier():
                    assignments.append(_Assignment(left, value))
    for word in find_evaluated(name, words[1:]):
        run_evaluated(reading.wrapped, word)
    variables = reading.variables
    names = tuple(assignment.name for assignment in assignments)
    named = [match[0] for word in words[1:] if (match := VARIABLE_NAME.match(word))]
    bare = [name for name in named if name not in names]
    options = "".join(word[1:] for word in words if word[:1] == "-")
    takes_away = any(word[:1] == "+" for word in words)
    is_builtin = reading.wrapped.is_builtin(name)
    if name == "unset" or "g" in options:
        variables.expose([*names, *bare])
    elif name in _LOCAL:
        variables.declare([*names, *bare], is_certain=reading.is_certain and is_builtin)
    is_plain = is_builtin and name in _HARMLESS and set(options) <= set(_HARMLESS[name])
    is_certain = is_plain and reading.replaces_values
    if "a" in options:
        variables.add_arrays([*names, *bare])
    unknown = [name for name in names if variables.list_values(name) == UNKNOWN]
    for assignment in assignments:  # `local x=a y=$x` has read the `$x` from before
        _assign(reading, assignment, is_certain=is_certain)
    variables.forget_unnamed(words)
    if name == "local" and not reading.functions.is_own_text:
        variables.forget(unknown)  # outside of functions it assigns nothing
    elif "g" in options:
        variables.forget_hidden(names)
    if any(map(UNKNOWN_NAME.match, words)):
        variables.doubt_assignments()
    if "n" in options and name not in ("export", "unset"):
        variables.add_references()
    elif not _CHANGING.isdisjoint(options):
        variables.destabilize([*names, *bare])
    elif name in _WITHOUT_VALUE:
        variables.remove(bare)
    if is_certain and (name == "export" or "x" in options) and not takes_away:
        variables.export([*names, *(word for word in words[1:] if word in bare)])
    else:
        variables.hide([*names, *bare])
    if "r" in options or name == "readonly":
        variables.fix([*names, *bare])
    return [reading.add(SimpleCommand(name, name, tuple(words[1:]), tail.redirects, names))]
