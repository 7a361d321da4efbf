"""Expressions from the cache: trees and shortcuts, compiled when they are used again."""

from __future__ import annotations

from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from policyguard.cel.errors import CelError
from policyguard.cel.shortcut import Shortcut, decide, find_shortcut
from policyguard.cel.types.types import Type
from policyguard.compiler.build.cel_env import CelEnvironment, Scope
from policyguard.compiler.build.entry_paths import Path
from policyguard.evaluator.activation import VARIABLE_PATHS, Activation, Expression

if TYPE_CHECKING:
    from policyguard.cel.program import Program
    from policyguard.cel.syntax.ast import Expr


class ExpressionSpec(msgspec.Struct, frozen=True):
    """An expression of the policy: its path, text, scope and expected type."""

    path: Path
    source: str
    scope: Scope
    expected_type: Type


class ParsedExpression(msgspec.Struct, frozen=True, array_like=True):
    """The parts of a compiled expression that are enough to compile it again.

    The tree is still encoded: most are never read.
    """

    encoded_tree: bytes
    reads: frozenset[str]
    shortcut: Shortcut

    @classmethod
    def from_program(cls, program: Program) -> ParsedExpression:
        """Return the parts of a program."""
        encoded = msgspec.msgpack.encode(program.tree)
        return cls(encoded, program.reads, find_shortcut(program.tree))


class LazyProgram:
    """A program compiled on first use, since most are never used."""

    def __init__(
        self, spec: ExpressionSpec, outline: ParsedExpression, environment: CelEnvironment
    ) -> None:
        self.source = spec.source
        self.reads = outline.reads
        self._shortcut = outline.shortcut
        self._encoded_tree = outline.encoded_tree
        self._spec = spec
        self._environment = environment

    def decide(self, activation: Activation) -> bool | None:
        """Return the value without compiling the program, if that is simple; else None."""
        tests = self._environment.text_tests
        return decide(self._shortcut, lambda name: _read(activation, name), tests)

    @cached_property
    def tree(self) -> Expr:
        """The syntax tree. Raises `CelError` if it was none that is cached."""
        from policyguard.cel.syntax.ast import Expr  # slow import

        try:
            return msgspec.msgpack.decode(self._encoded_tree, type=Expr)
        except (msgspec.DecodeError, RecursionError):
            raise CelError(()) from None

    @cached_property
    def program(self) -> Program:
        """Compile the program. Raises `CelError` if the tree does not belong to the text."""
        from policyguard.cel.program import compile as compile_cel  # slow import

        spec = self._spec
        declarations = self._environment.declarations(spec.scope)
        return compile_cel(spec.source, declarations, expect=spec.expected_type, tree=self.tree)


def to_expression(program: Program | LazyProgram) -> Expression:
    """Return a program as a function of the activation."""
    if not isinstance(program, LazyProgram):
        return program.function

    function: Expression

    def first(activation: Activation) -> Any:
        nonlocal function
        function = second
        value = program.decide(activation)
        return second(activation) if value is None else value

    def second(activation: Activation) -> Any:
        nonlocal function
        function = program.program.function
        return function(activation)

    function = first
    return lambda activation: function(activation)


def _read(activation: Activation, name: str) -> Any:
    """Return a variable or a field of one. Raises `LookupError` if there is none."""
    path = VARIABLE_PATHS.get(name)
    if path is not None:
        return attrgetter(path)(activation)
    variable, _, field = name.rpartition(".")
    fields = attrgetter(VARIABLE_PATHS[variable])(activation)
    if fields.__class__ is not dict:
        raise KeyError(field)
    return fields[field]
