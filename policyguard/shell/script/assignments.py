"""Variables that a script assigns, exports and removes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policyguard.shell.command_line import MANY, SimpleCommand
from policyguard.shell.script.inputs import Tail
from policyguard.shell.script.variables import VARIABLE_NAME
from policyguard.shell.script.word_reader import read_raw
from policyguard.shell.words import join

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements
    from policyguard.shell.script.syntax_tree import Node


_CHANGING = frozenset("iluc")
"""Options of `declare` with which a variable has another value than it is given."""
_WITHOUT_VALUE = frozenset(("unset", "unsetenv", "local", "declare", "typeset"))
"""Declarations behind which a name without a value has none, or that of a caller."""


def assign(reading: Statements, node: Node) -> tuple[str, ...]:
    """Read `name=value`; return the name."""
    children = node.children
    name = reading.text(children[0]).partition("[")[0]
    for child in children[0].named_children:  # `name[$(…)]=value`
        read_raw(reading, child, quoted=True)
    if len(children) < 3:
        reading.variables.assign(name, "")
    elif children[2].type == "array" or children[0].type == "subscript":
        for child in children[2].named_children:
            read_raw(reading, child, quoted=True)
        reading.variables.assign(name, MANY)
    else:
        value = read_raw(reading, children[2], quoted=False)
        value = join(value, reading.bounds.words)
        reading.variables.assign(name, value, append=children[1].type == "+=")
        reading.wrapped.assign(name, value)
    return (name,)


def run_declaration(reading: Statements, node: Node, tail: Tail) -> list[int]:
    """Run `export x=…`, `local`, `unset` and the like; return the index of the command."""
    reading.check_gaps(node)
    names: tuple[str, ...] = ()
    words = [reading.text(node.children[0])]
    for child in node.named_children:
        if child.type == "variable_assignment":
            names += assign(reading, child)
        else:
            for word in reading.read_words(child):
                words.append(word)
                name, equals, value = word.partition("=")  # `export "name=value"`
                if equals and name.isidentifier():
                    reading.variables.assign(name, value)
                    reading.wrapped.assign(name, value)
                    names += (name,)
    name = words[0]
    named = [match[0] for word in words[1:] if (match := VARIABLE_NAME.match(word))]
    bare = [name for name in named if name not in names]
    options = "".join(word[1:] for word in words if word[:1] == "-")
    if "n" in options and name not in ("export", "unset"):
        reading.variables.add_references()
    elif not _CHANGING.isdisjoint(options):
        reading.variables.destabilize([*names, *bare])
    elif name in _WITHOUT_VALUE:
        reading.variables.remove(bare)
    return [reading.add(SimpleCommand(name, name, tuple(words[1:]), tail.redirects, names))]
