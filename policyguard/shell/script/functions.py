"""Functions that a text defines: what they run is read where they are called.

Where a name is defined twice, either may be meant. A function that nothing calls by its name, or
that calls itself, is read once more, with arguments that are not known: something that cannot be
seen may call it. One that a command before its definition, or of an unknown name, may call is read
with the arguments of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from policyguard.shell.command_line import MANY, MARKS, SimpleCommand
from policyguard.shell.folders import may_move
from policyguard.shell.plain import RESERVED
from policyguard.shell.script.inputs import Input, Tail
from policyguard.shell.script.rewriting import HereDocument
from policyguard.shell.script.variables.values import Kept
from policyguard.shell.words import is_static

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements
    from policyguard.shell.script.syntax_tree import Node


class _Body(msgspec.Struct, frozen=True, gc=False):
    """The definition of a function, the text that it stands in, and what it is redirected to."""

    definition: Node
    source: bytes
    documents: list[HereDocument]
    given: Input
    tail: Tail
    commands_before: int
    """How many commands were read before it."""
    is_certain: bool
    """Whether it stands where all is run."""
    process: int
    """The shell that knows it."""


class Functions:
    """The functions of one reading, by name."""

    def __init__(self, reading: Statements) -> None:
        self._reading = reading
        self._bodies: dict[str, dict[tuple[bytes, int], _Body]] = {}
        self._running: set[str] = set()
        self._unread: set[str] = set()
        """Names of functions that may be called with other arguments than those read so far."""
        self._finished: set[str] = set()
        self._is_called = True
        """Whether the function that runs is called for certain, and so are those that call it."""
        self._later = set[str]()
        """Names that may be called at any time."""
        self._calls: list[tuple[bytes, list[Kept], int]] = []
        """For each function that runs, its text, what a caller sees where it may end early, and the
        shell that runs it."""
        self._sources: dict[str, tuple[int, ...]] = {}
        """What functions read where they call themselves."""

    def __contains__(self, name: str) -> bool:
        return name in self._bodies

    def __bool__(self) -> bool:
        return bool(self._bodies)

    def define(self, node: Node, given: Input, tail: Tail) -> None:
        """Add the function of a definition, which may be redirected."""
        reading = self._reading
        name = reading.text(node.named_children[0])
        bodies = self._bodies.get(name, {})
        place = reading.source, node.start_byte
        if place not in bodies:
            before, is_certain = len(reading.commands), reading.is_certain and self._is_called
            process = reading.variables.process
            body = _Body(
                node, reading.source, reading.documents, given, tail, before, is_certain, process
            )
            self._bodies[name] = {**bodies, place: body}
            self._unread.add(name)
            self._finished.discard(name)
            if name in self._later:
                kept = self.forget_unsettled("") if is_certain else reading.variables.forget_all()
                self._run(name, None, given)
                reading.variables.destabilize_changes(kept)
                reading.control.note_later(before)

    def forget_unsettled(self, text: str) -> Kept:
        """Make values unknown, as for the text of a trap; return what they were.

        Those stay that are assigned once, in no function.
        """
        bodies = [body for bodies in self._bodies.values() for body in bodies.values()]
        texts = [
            body.source[body.definition.start_byte : body.definition.end_byte].decode()
            for body in bodies
        ]
        variables = self._reading.variables
        kept = variables.forget_all(but_settled_outside=texts)
        variables.rely_on_values("\n".join((text, *texts)))
        return kept

    def expect_later(self, first: int) -> None:
        """Note that the commands from an index on run at other times, as those of a trap."""
        self._later.update(command.path for command in self._reading.commands[first:])

    def call(self, name: str, arguments: list[str], given: Input) -> list[int]:
        """Read what a call runs; return the indices of the commands that write to its output."""
        if name in self._running:
            self._unread.add(name)
            self._sources[name] = (*self._sources.get(name, ()), *given.sources)
            variables = self._reading.variables
            variables.positional = variables.forget_all().positional
            if may_move(self._reading.source.decode()):
                self._reading.control.doubt()
            return []
        self._unread.discard(name)
        return self._run(name, [MANY, *arguments], given)

    @property
    def is_running(self) -> bool:
        """Whether a function is read."""
        return bool(self._running)

    @property
    def is_own_text(self) -> bool:
        """Whether what is read stands in the function that runs, so that `return` ends that."""
        if not self._calls or self._reading.source is not self._calls[-1][0]:
            return False
        return self._reading.variables.process == self._calls[-1][2]

    def is_own_program(self, name: str, around: tuple[str, ...]) -> bool:
        """Whether a function means the program of its name: `git() { command git "$@"; }`."""
        return name in self._running and not RESERVED.issuperset(around)

    def expect(self, words: list[str]) -> None:
        """Note the functions among the arguments of a program, which may call them, or its end."""
        if words[0] == "return" and self._calls:
            variables = self._reading.variables
            kept, declared = variables.keep(), variables.leave_function()
            self._calls[-1][1].append(variables.keep())
            variables.enter_function(declared)
            variables.restore(kept)
        named = {word for word in words[1:] if word in self._bodies}
        wrapper = self._reading.reader.wrappers.find(words[0]) if named else None
        if wrapper is not None:
            named -= named if wrapper.later else self._running  # their commands are read apart
        self._unread |= named

    @contextmanager
    def keep_apart(self) -> Iterator[None]:
        """Forget what a text defines that is read meanwhile: it is a process of its own."""
        bodies, unread = dict(self._bodies), self._unread
        self._unread = set()
        try:
            yield
            self._read_unread()
        finally:
            self._bodies, self._unread = bodies, unread

    def read_rest(self) -> None:
        """Read the functions that may be called where it cannot be seen."""
        if not self:
            return
        self._reading.control.run_anywhere()
        for index, command in enumerate(list(self._reading.commands)):
            for name in list(self._find_hidden(index, command)):
                self._run(name, [MANY, *command.arguments], Input(command.sources))
        self._read_unread()

    def _read_unread(self) -> None:
        while left := self._unread - self._finished:
            name = min(left)
            self._finished.add(name)
            kept = self._reading.variables.forget_all()
            self._run(name, None, Input(self._sources.get(name, ())))
            self._reading.variables.restore(kept)

    def _find_hidden(self, index: int, command: SimpleCommand) -> Iterator[str]:
        """Yield the functions that a command may call before they are defined, or unknowingly."""
        path = command.path
        if is_static(path):
            bodies = self._bodies.get(path, {}).values()
            if any(index < body.commands_before for body in bodies):
                yield path
        elif path != MANY:
            start, *_, end = re.split(f"[{MARKS}]", path)
            for name in self._bodies:
                if name.startswith(start) and name.endswith(end):
                    yield name

    def _run(self, name: str, positional: list[str] | None, given: Input) -> list[int]:
        reading, variables = self._reading, self._reading.variables
        outer = reading.source, reading.documents
        outer_positional, variables.positional = variables.positional, positional
        self._running.add(name)
        reading.enter()
        indices: list[int] = []
        bodies = list(self._bodies[name].values())
        kept, ends = variables.keep(), list[Kept]()
        outer_certainty = reading.is_certain, self._is_called
        self._is_called = self._is_called and reading.is_certain
        reading.is_certain = True
        try:
            for body in bodies:
                variables.restore(kept)  # if there are several, either may be meant
                variables.enter_function({})
                self._calls.append((body.source, [], variables.process))
                reading.source, reading.documents = body.source, body.documents
                own = body.given or given
                outer_loops = reading.control.leave_loops()
                indices += reading.redirections.run(body.definition, own, body.tail)
                reading.control.return_to(outer_loops)
                variables.leave_function()
                variables.join(*self._calls.pop()[1])
                ends.append(variables.keep())
            is_certain = bodies[0].is_certain and bodies[0].process == variables.process
            variables.join(*ends[:-1], *([] if is_certain else [kept]))
        finally:
            reading.source, reading.documents = outer
            variables.positional = outer_positional
            reading.is_certain, self._is_called = outer_certainty
            self._running.discard(name)
        reading.leave()
        return indices
