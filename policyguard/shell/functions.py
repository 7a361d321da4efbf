"""Functions that a text defines: what they run is read where they are called.

Where a name is defined twice, either may be meant. A function that nothing calls by its name, or
that calls itself, is read once more, with arguments that are not known: something that cannot be
seen may call it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from policyguard.shell.command_line import MANY
from policyguard.shell.inputs import NO_TAIL, NOTHING, Input
from policyguard.shell.rewriting import HereDocument

if TYPE_CHECKING:
    from policyguard.shell.statements import Statements
    from policyguard.shell.syntax_tree import Node


class _Body(msgspec.Struct, frozen=True, gc=False):
    """The statements of a function, and the text that they stand in."""

    statements: list[Node]
    source: bytes
    documents: list[HereDocument]


class Functions:
    """The functions of one reading, by name."""

    def __init__(self, reading: Statements) -> None:
        self._reading = reading
        self._bodies: dict[str, dict[tuple[bytes, int], _Body]] = {}
        self._running: set[str] = set()
        self._unread: set[str] = set()
        """Names of functions that may be called with other arguments than those read so far."""
        self._finished: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._bodies

    def __bool__(self) -> bool:
        return bool(self._bodies)

    def define(self, node: Node) -> None:
        """Add the function of a definition."""
        reading = self._reading
        name, *statements = node.named_children
        bodies = self._bodies.setdefault(reading.text(name), {})
        place = reading.source, node.start_byte
        if place not in bodies:
            bodies[place] = _Body(statements, reading.source, reading.documents)
            self._unread.add(reading.text(name))
            self._finished.discard(reading.text(name))

    def call(self, name: str, arguments: list[str], given: Input) -> list[int]:
        """Read what a call runs; return the indices of the commands that write to its output."""
        if name in self._running:
            self._unread.add(name)
            return []
        self._unread.discard(name)
        return self._run(name, [MANY, *arguments], given)

    def expect(self, words: list[str]) -> None:
        """Note the functions among the arguments of a program, which may call them."""
        self._unread.update(word for word in words if word in self._bodies)

    def read_rest(self) -> None:
        """Read the functions that may be called where it cannot be seen."""
        while left := self._unread - self._finished:
            name = min(left)
            self._finished.add(name)
            self._run(name, None, NOTHING)

    def _run(self, name: str, positional: list[str] | None, given: Input) -> list[int]:
        reading, variables = self._reading, self._reading.variables
        outer = reading.source, reading.documents
        outer_positional, variables.positional = variables.positional, positional
        self._running.add(name)
        reading.enter()
        indices: list[int] = []
        try:
            for body in list(self._bodies[name].values()):
                reading.source, reading.documents = body.source, body.documents
                for statement in body.statements:
                    indices += reading.run(statement, given, NO_TAIL)
        finally:
            reading.source, reading.documents = outer
            variables.positional = outer_positional
            self._running.discard(name)
        reading.leave()
        return indices
